package status

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/cmd/listproxy/cli/clitest"
	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/expect"
)

func TestStatusCommand(t *testing.T) {
	answer := func(kind string, code int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "/statusz?format=json" {
				t.Errorf("asked for %s", r.URL)
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	status := func(healthy bool) string {
		body, err := json.Marshal(statusz.Status{
			Version: "v1.2.3", Healthy: healthy, Checks: []statusz.Check{{Name: "feeds", OK: healthy, Message: "a reason"}},
		})
		expect.NoError(t, err)
		return answer("application/json", 200, string(body))
	}
	healthy := status(true)
	// The near end of a connection: nobody listens there, nor is anybody else given the port.
	conn, err := net.Dial("tcp", strings.TrimPrefix(healthy, "http://"))
	expect.NoError(t, err)
	defer func() { _ = conn.Close() }()
	nobody := conn.LocalAddr().String()
	for name, tt := range map[string]struct {
		args []string
		code int
		says []string // in the output
		err  []string
	}{
		"healthy":              {args: []string{"--address", healthy}, says: []string{"v1.2.3", "healthy"}},
		"without http://":      {args: []string{"--address", strings.TrimPrefix(healthy, "http://")}, says: []string{"v1.2.3"}},
		"as json":              {args: []string{"--address", healthy, "-o", "json"}, says: []string{`"version":"v1.2.3"`}},
		"not healthy":          {args: []string{"--address", status(false)}, code: 1, says: []string{"NOT HEALTHY", "a reason"}, err: []string{"not healthy", "feeds"}},
		"not healthy, as json": {args: []string{"--address", status(false), "-o", "json"}, code: 1, says: []string{`"healthy":false`}, err: []string{"not healthy"}},
		"refused":              {args: []string{"--address", answer("text/plain", 403, "use an IP address\n\x1b[2J")}, code: 1, err: []string{"403", "use an IP address [2J"}},
		"many ask":             {args: []string{"--address", answer("text/plain", 429, "try again")}, code: 1, err: []string{"429", "try again"}},
		"redirected":           {args: []string{"--address", answer("text/plain", 307, "")}, code: 1, err: []string{"307", "--admin-bind-address"}},
		"nobody":               {args: []string{"--address", nobody}, code: 1, err: []string{"nobody listens", "--admin-bind-address", "--address", "port-forward"}},
		"another server":       {args: []string{"--address", answer("text/html", 404, "no")}, code: 1, err: []string{"404", "--admin-bind-address"}},
		"another JSON":         {args: []string{"--address", answer("application/json", 200, "{}")}, code: 1, err: []string{"--address"}},
		"no JSON":              {args: []string{"--address", answer("application/json", 200, "{")}, code: 1, err: []string{"--address"}},
		"wrong address":        {args: []string{"--address", "ftp://x"}, code: 2, err: []string{"--address", "http://127.0.0.1:8081"}},
		"no address":           {args: []string{"--address", ""}, code: 2, err: []string{"--address"}},
		"wrong form":           {args: []string{"--address", healthy, "-o", "xml"}, code: 2, err: []string{"--output", "table or json"}},
		"wrong flag":           {args: []string{"--no-such-flag"}, code: 2, err: []string{"unknown flag"}},
		"an argument":          {args: []string{"x"}, code: 2, err: []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, err := clitest.Execute(t, NewCommand(), tt.args...)
			if code != tt.code || (err != nil) != (tt.err != nil) {
				t.Errorf("exit code %d: %v", code, err)
			}
			for _, word := range tt.says {
				if !strings.Contains(out, word) {
					t.Errorf("the output does not say %q: %s", word, out)
				}
			}
			for _, word := range tt.err {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%v does not say %q", err, word)
				}
			}
		})
	}
}

// TestStatusCommandsNoTerminal: JSON may hold control characters, those of Latin-1, and an answer
// is whose address was given.
func TestStatusCommandsNoTerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{\"version\":\"v1\u009b2J\x7f\",\"healthy\":true,\"later\":1}"))
	}))
	defer server.Close()
	for _, form := range []string{outputTable, outputJSON} {
		code, out, err := clitest.Execute(t, NewCommand(), "--address", server.URL, "-o", form)
		if code != 0 || strings.ContainsAny(out, "\u009b\x7f\x1b") || !strings.Contains(out, "v12J") {
			t.Errorf("%s: exit code %d, %v: %q", form, code, err, out)
		}
		if form == outputJSON && !strings.Contains(out, `"later":1`) {
			t.Errorf("what a later version says is lost: %s", out)
		}
	}
}

// TestStatusAddressKeepsSecrets: what was typed by mistake is not said again.
func TestStatusAddressKeepsSecrets(t *testing.T) {
	for _, address := range []string{"http://alice:s3cr3t@127.0.0.1", "http://127.0.0.1?token=s3cr3t"} {
		if code, out, err := clitest.Execute(t, NewCommand(), "--address", address); code != 2 || strings.Contains(out+err.Error(), "s3cr3t") {
			t.Errorf("exit code %d: %v", code, err)
		}
	}
}

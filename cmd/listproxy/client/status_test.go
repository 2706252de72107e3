package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestStatusCommand: the command prints what the status page says, fails where the process is not healthy or does not
// answer, and writes nothing to a terminal that could control it.
func TestStatusCommand(t *testing.T) {
	answer := func(code int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "/statusz?format=json" {
				t.Errorf("asked for %s", r.URL)
			}
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	status := func(healthy bool) string {
		body, err := json.Marshal(admin.Status{
			Version: "v1.2.3", Healthy: healthy, Checks: []admin.Check{{Name: "feeds", OK: healthy, Message: "a reason"}},
			Lists: admin.Answers{Answered: 3, Forwarded: 1, Share: new(0.75)}, Reasons: []admin.Reason{{Reason: "watch", Watches: 7, Meaning: "a watch"}},
			Collections: []admin.Collection{{
				Resource: "pods", Version: "v1", Representation: "json", State: "live", Objects: 12, From: 3, To: 9,
				Bytes: 5 << 20,
			}},
			Changes: []admin.Change{{
				Of: "widgets.example.com", Cause: "schema", Age: 4,
			}}, Mismatches: []admin.Mismatch{{Resource: "nodes\x1b[2J", Times: 2}},
		})
		expect.NoError(t, err)
		return answer(200, string(body))
	}
	healthy := status(true)
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, tt := range map[string]struct {
		address string
		fails   bool
		says    []string // the error included
	}{
		"healthy": {healthy, false, []string{
			"listproxy v1.2.3 is healthy", "75.0 % from memory (3, and 1 forwarded)", "pods", "12", "3-9", "5.0 MiB", "a watch", "widgets.example.com", "nodes[2J",
		}},
		"without http://": {strings.TrimPrefix(healthy, "http://"), false, []string{"v1.2.3"}},
		"not healthy":     {status(false), true, []string{"NOT HEALTHY", "[-]feeds not ready: a reason", "not healthy"}},
		"refused":         {answer(403, "use an IP address\n\x1b[2J"), true, []string{"403", "use an IP address [2J"}},
		"redirected":      {answer(307, ""), true, []string{"307", "--admin-bind-address"}},
		"nobody":          {gone.URL, true, []string{"refused", "--admin-bind-address", "--address", "port-forward"}},
		"another JSON":    {answer(200, "{}"), true, []string{"no status: {}", "--address"}},
		"no JSON":         {answer(200, "{"), true, []string{"--address"}},
		"wrong address":   {"ftp://x", true, []string{"--address", "http://127.0.0.1:8081"}},
		"no address":      {"", true, []string{"--address"}},
		"a password":      {"http://alice:s3cr3t@127.0.0.1", true, []string{"--address"}},
		"a query":         {"http://127.0.0.1?token=s3cr3t", true, []string{"--address"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := clitest.Run(t, tt.fails, NewStatusCommand(), "--address", tt.address)
			expect.Says(t, out, tt.says...)
			if strings.ContainsAny(out, "\x1b\x7f") || strings.Contains(out, "s3cr3t") {
				t.Errorf("a terminal gets %q", out)
			}
		})
	}
}

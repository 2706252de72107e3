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

// servePage starts an admin port whose status page answers code and body, and returns the port's URL.
func servePage(t *testing.T, code int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.String(), "/statusz?format=json"; got != want {
			t.Errorf("listproxy status requests %s, want %s", got, want)
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// serveStatus starts an admin port whose status has one row in each of its tables, and returns the port's URL.
func serveStatus(t *testing.T, healthy bool) string {
	t.Helper()
	body, err := json.Marshal(admin.Status{
		Version: "v1.2.3",
		Healthy: healthy,
		Checks:  []admin.Check{{Name: "feeds", OK: healthy, Message: "a reason"}},
		Lists:   admin.Answers{FromMemory: 3, Forwarded: 1, Share: new(0.75)},
		Reasons: []admin.Reason{{Reason: "watch", Watches: 7, Meaning: "a watch"}},
		Collections: []admin.Collection{{
			CollectionName: admin.CollectionName{Resource: "pods", Version: "v1", Representation: "json"},
			State:          "live", Objects: 12, OldestRevision: 3, NewestRevision: 9, Bytes: 5 << 20,
		}},
		// The name of the resource has an escape sequence of terminals.
		Mismatches: []admin.Mismatch{{CollectionName: admin.CollectionName{Resource: "nodes\x1b[2J"}, Times: 2}},
	})
	expect.NoError(t, err)
	return servePage(t, http.StatusOK, string(body))
}

// TestStatusCommand: listproxy status prints what the status page says. It fails if listproxy is not healthy or does not
// answer. Its output and its error have no control characters and no password.
func TestStatusCommand(t *testing.T) {
	const isHealthy = true
	healthy := serveStatus(t, isHealthy)
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, test := range []struct {
		name      string
		address   string
		wantError bool
		wantSays  []string // in the output or the error
	}{
		{
			name: "healthy", address: healthy,
			wantSays: []string{
				"listproxy v1.2.3 is healthy", "75.0 % from memory (3, and 1 forwarded)", "pods", "12", "3-9", "5.0 MiB",
				"a watch", "nodes[2J",
			},
		},
		{
			name: "address without http://", address: strings.TrimPrefix(healthy, "http://"),
			wantSays: []string{"v1.2.3"},
		},
		{
			name: "not healthy", address: serveStatus(t, !isHealthy), wantError: true,
			wantSays: []string{"NOT HEALTHY", "[-]feeds not ready: a reason", "not healthy"},
		},
		{
			name:    "403, with an escape sequence of terminals",
			address: servePage(t, http.StatusForbidden, "use an IP address\n\x1b[2J"), wantError: true,
			wantSays: []string{"403", "use an IP address [2J"},
		},
		{
			name: "redirect", address: servePage(t, http.StatusTemporaryRedirect, ""), wantError: true,
			wantSays: []string{"307", "--admin-bind-address"},
		},
		{
			name: "closed port", address: closed.URL, wantError: true,
			wantSays: []string{"refused", "--admin-bind-address", "--address", "port-forward"},
		},
		{
			name: "JSON of another program", address: servePage(t, http.StatusOK, "{}"), wantError: true,
			wantSays: []string{"no status: {}", "--address"},
		},
		{
			name: "unknown scheme", address: "ftp://x", wantError: true,
			wantSays: []string{"--address", "http://127.0.0.1:8081"},
		},
		{name: "empty address", address: "", wantError: true, wantSays: []string{"--address"}},
		{
			name: "address with a password", address: "http://alice:s3cr3t@127.0.0.1", wantError: true,
			wantSays: []string{"--address has a user or a query"},
		},
		{
			name: "address with a query", address: "http://127.0.0.1?token=s3cr3t", wantError: true,
			wantSays: []string{"--address has a user or a query"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := clitest.Run(t, test.wantError, NewStatusCommand(), "--address", test.address)
			expect.Says(t, out, test.wantSays...)
			if strings.ContainsAny(out, "\x1b\x7f") || strings.Contains(out, "s3cr3t") {
				t.Errorf("got the output %q, want no control characters and no password", out)
			}
		})
	}
}

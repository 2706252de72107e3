package client

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestTryCommand: listproxy try says whether its list came from memory, or why it was forwarded. It asks again while the reason
// is transient. It fails if the list did not come from memory, and never prints the token.
func TestTryCommand(t *testing.T) {
	const (
		hit       = "listproxy; hit; detail=any"
		warming   = "listproxy; fwd=miss; detail=warming" // a transient reason
		notCached = "listproxy; fwd=bypass; detail=not-cached"
	)
	for _, test := range []struct {
		name          string
		code          int      // of all answers; 0 is 200
		cacheStatuses []string // of the answers in their order; further answers have the last one
		args          []string
		wantError     bool
		wantSays      []string // in the output or the error
	}{
		{
			name: "from memory", cacheStatuses: []string{hit},
			wantSays: []string{"from memory: 4 B", "Cache-Status: " + hit},
		},
		{
			name: "forwarded, then from memory", cacheStatuses: []string{warming, hit},
			wantSays: []string{"forwarded: warming", "from memory"},
		},
		{
			name: "forwarded until the time is over", cacheStatuses: []string{warming}, args: []string{"--wait", "0"},
			wantError: true, wantSays: []string{"did not come from memory within 0s: warming"},
		},
		{
			name: "forwarded for a reason that stays", cacheStatuses: []string{notCached}, wantError: true,
			wantSays: []string{"forwarded: not-cached. The policy", "did not come from memory: not-cached"},
		},
		{
			name: "forwarded with --allow-forwarded", cacheStatuses: []string{notCached},
			args: []string{"--allow-forwarded"}, wantSays: []string{"forwarded: not-cached"},
		},
		{
			name: "unauthorized", code: http.StatusUnauthorized,
			cacheStatuses: []string{"listproxy; fwd=bypass; detail=unknown-caller"}, wantError: true,
			wantSays: []string{"the answer is 401: the kubeconfig's credentials are not accepted"},
		},
		{
			name: "forbidden", code: http.StatusForbidden,
			cacheStatuses: []string{"listproxy; fwd=bypass; detail=not-allowed"}, wantError: true,
			wantSays: []string{"the answer is 403: the kubeconfig's user may not list this"},
		},
		{
			name: "forwarded, and failed", code: http.StatusInternalServerError, cacheStatuses: []string{notCached},
			args: []string{"--allow-forwarded"}, wantError: true, wantSays: []string{"500 Internal Server Error, not a list"},
		},
		{
			name: "failed for a transient reason, then from memory", code: http.StatusServiceUnavailable,
			cacheStatuses: []string{warming, hit}, wantSays: []string{"forwarded: warming", "from memory"},
		},
		{
			name: "failed for a transient reason until the time is over", code: http.StatusServiceUnavailable,
			cacheStatuses: []string{warming}, args: []string{"--wait", "0", "--allow-forwarded"},
			wantError: true, wantSays: []string{"the answer is 503 Service Unavailable, not a list"},
		},
		{
			name: "answer without Cache-Status", cacheStatuses: []string{""}, wantError: true,
			wantSays: []string{"does not lead to a listproxy"},
		},
		{
			name: "redirect", code: http.StatusFound, cacheStatuses: []string{""}, wantError: true,
			wantSays: []string{"does not lead to a listproxy"},
		},
		{
			name: "overload", code: http.StatusTooManyRequests, cacheStatuses: []string{""}, wantError: true,
			wantSays: []string{"429 Too Many Requests"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			requests := 0
			const http2 = false
			config := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if token := r.Header.Get("Authorization"); r.URL.String() != defaultPath || token != "Bearer secret" {
					t.Errorf("the request is for %s with %q, want %s with the token", r.URL, token, defaultPath)
				}
				if status := test.cacheStatuses[min(requests, len(test.cacheStatuses)-1)]; status != "" {
					w.Header().Set("Cache-Status", status)
				}
				requests++
				if test.code == http.StatusFound {
					w.Header().Set("Location", "/elsewhere")
				}
				if test.code != 0 {
					w.WriteHeader(test.code)
				}
				_, _ = w.Write([]byte("list")) // 4 bytes
			}).Config()
			config.BearerToken = "secret"
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			expect.NoError(t, controlplane.WriteKubeconfig(kubeconfig, config))
			args := slices.Concat([]string{"--kubeconfig", kubeconfig}, test.args)
			out := clitest.Run(t, test.wantError, NewTryCommand("listproxy-try/v1"), args...)
			expect.Says(t, out, test.wantSays...)
			proxytest.AssertNotContains(t, out, "secret")
		})
	}
}

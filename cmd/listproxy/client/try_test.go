package client

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestTryCommand: what is said of where a list came from, and when it is asked for again.
func TestTryCommand(t *testing.T) {
	const hit, warming = "listproxy; hit; detail=any", "listproxy; fwd=miss; detail=warming"
	for _, test := range []struct {
		name    string
		code    int
		sources []string // of one answer after the other; the last one goes on
		args    []string
		fails   bool
		want    []string
	}{
		{"from memory", 200, []string{hit}, nil, false, []string{"from memory: 4 B", "Cache-Status: " + hit}},
		{"soon from memory", 200, []string{warming, hit}, nil, false, []string{"forwarded: warming", "from memory"}},
		{"not soon enough", 200, []string{warming}, []string{"--wait", "0"}, true, []string{"did not come from memory within 0s: warming"}},
		{"never", 200, []string{"listproxy; fwd=bypass; detail=not-cached"}, nil, true, []string{"forwarded: not-cached. The policy", "did not come from memory: not-cached"}},
		{"forwarded is enough", 200, []string{"listproxy; fwd=bypass; detail=not-cached"}, []string{"--allow-forwarded"}, false, []string{"forwarded: not-cached"}},
		{"no right", 403, []string{"listproxy; fwd=bypass; detail=not-allowed"}, nil, true, []string{"answers 403: the kubeconfig's user may not list this"}},
		{"no listproxy", 200, []string{""}, nil, true, []string{"does not lead to a listproxy"}},
		{"sent elsewhere", 302, []string{""}, nil, true, []string{"does not lead to a listproxy"}},
		{"overloaded", 429, []string{""}, nil, true, []string{"429 Too Many Requests"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			config := proxytest.StartUpstream(t, false, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.String() != defaultPath || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("asked for %s", r.URL)
				}
				if source := test.sources[min(asked, len(test.sources)-1)]; source != "" {
					w.Header().Set("Cache-Status", source)
				}
				asked++
				if test.code == http.StatusFound {
					w.Header().Set("Location", "/elsewhere")
				}
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte("list"))
			}).Config()
			config.BearerToken = "secret"
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			expect.NoError(t, controlplane.WriteKubeconfig(kubeconfig, config))
			out := clitest.Run(t, test.fails, NewTryCommand("listproxy-try/v1"), append([]string{"--kubeconfig", kubeconfig}, test.args...)...)
			expect.Says(t, out, test.want...)
			proxytest.AssertNotContains(t, out, "secret")
		})
	}
}

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
		{name: "from memory", code: 200, sources: []string{hit}, want: []string{"from memory: 4 B", "Cache-Status: " + hit}},
		{name: "soon from memory", code: 200, sources: []string{warming, hit}, want: []string{"forwarded: warming", "from memory"}},
		{
			name: "not soon enough", code: 200, sources: []string{warming}, args: []string{"--wait", "0"}, fails: true,
			want: []string{"did not come from memory within 0s: warming"},
		},
		{
			name: "never", code: 200, sources: []string{"listproxy; fwd=bypass; detail=not-cached"}, fails: true,
			want: []string{"forwarded: not-cached. The policy", "did not come from memory: not-cached"},
		},
		{
			name: "forwarded is enough", code: 200, sources: []string{"listproxy; fwd=bypass; detail=not-cached"},
			args: []string{"--allow-forwarded"}, want: []string{"forwarded: not-cached"},
		},
		{
			name: "no right", code: 403, sources: []string{"listproxy; fwd=bypass; detail=not-allowed"}, fails: true,
			want: []string{"answers 403: the kubeconfig's user may not list this"},
		},
		{name: "no listproxy", code: 200, sources: []string{""}, fails: true, want: []string{"does not lead to a listproxy"}},
		{name: "another cache", code: 200, sources: []string{"other; fwd=miss"}, fails: true, want: []string{"does not lead to a listproxy"}},
		{name: "sent elsewhere", code: 302, sources: []string{""}, fails: true, want: []string{"does not lead to a listproxy"}},
		{name: "overloaded", code: 429, sources: []string{""}, fails: true, want: []string{"429 Too Many Requests"}},
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

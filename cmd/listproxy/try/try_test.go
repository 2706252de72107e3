package try

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestTryCommand: what is said of where a list came from, and when it is asked for again.
func TestTryCommand(t *testing.T) {
	const hit, warming = "listproxy; hit; detail=any", "listproxy; fwd=miss; detail=warming"
	for _, test := range []struct {
		name    string
		code    int
		sources []string // of one answer after the other; the last one goes on
		args    []string
		exit    int
		want    []string
	}{
		{"from memory", 200, []string{hit}, nil, 0, []string{"from memory: 4 B", "Cache-Status: " + hit}},
		{"soon from memory", 200, []string{warming, hit}, nil, 0, []string{"forwarded: warming", "from memory"}},
		{"not soon enough", 200, []string{warming}, []string{"--wait", "0"}, cli.ExitFailed, []string{"did not come from memory within 0s: warming"}},
		{"never", 200, []string{"listproxy; fwd=bypass; detail=not-cached"}, nil, cli.ExitFailed, []string{"forwarded: not-cached. The policy", "did not come from memory: not-cached"}},
		{"forwarded is enough", 200, []string{"listproxy; fwd=bypass; detail=not-cached"}, []string{"--allow-forwarded"}, 0, []string{"forwarded: not-cached"}},
		{"no right", 403, []string{"listproxy; fwd=bypass; detail=not-allowed"}, nil, cli.ExitFailed, []string{"answers 403: the kubeconfig's user may not list this"}},
		{"no listproxy", 200, []string{""}, nil, cli.ExitFailed, []string{"does not lead to a listproxy"}},
		{"sent elsewhere", 302, []string{""}, nil, cli.ExitFailed, []string{"does not lead to a listproxy"}},
		{"overloaded", 429, []string{""}, nil, cli.ExitFailed, []string{"429 Too Many Requests"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			}))
			defer server.Close()
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			expect.NoError(t, clientcmd.WriteToFile(api.Config{
				CurrentContext: "it",
				Contexts:       map[string]*api.Context{"it": {Cluster: "it", AuthInfo: "me"}},
				Clusters:       map[string]*api.Cluster{"it": {Server: server.URL, CertificateAuthorityData: ca}},
				AuthInfos:      map[string]*api.AuthInfo{"me": {Token: "secret"}},
			}, kubeconfig))
			out := clitest.Ends(t, test.exit, NewCommand("listproxy-try/v1"), append([]string{"--kubeconfig", kubeconfig}, test.args...)...)
			expect.Says(t, out, test.want...)
			if strings.Contains(out, "secret") {
				t.Errorf("it tells the token: %s", out)
			}
		})
	}
}

package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestInCluster: the kubeconfig of pods needs none to begin with, has a path in place of a token,
// and of the files with CAs only the certificates.
func TestInCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	dir := t.TempDir()
	caPath, keyPath, err := serve.SelfSigned(dir, nil)
	expect.NoError(t, err)
	ca, err := os.ReadFile(caPath) // #nosec G304 -- of this test
	expect.NoError(t, err)
	key, err := os.ReadFile(keyPath) // #nosec G304 -- of this test
	expect.NoError(t, err)
	withKey := filepath.Join(dir, "with-key.pem")
	expect.NoError(t, os.WriteFile(withKey, append(key, ca...), 0o600))
	want := string(ca)

	args := []string{
		"--in-cluster", "--server=https://listproxy.proxies.svc", "--certificate-authority", withKey,
		"--certificate-authority", caPath,
	}
	for _, tt := range []struct {
		args     []string
		name, ns string
	}{
		{name: "kubernetes.default.svc"},
		{args: []string{"--tls-server-name=", "--namespace=team-a"}, ns: "team-a"},
	} {
		_, out, err := clitest.Execute(t, NewCommand(), append(args, tt.args...)...)
		expect.NoError(t, err)
		if strings.Contains(out, "KEY") {
			t.Errorf("a key is in it:\n%s", out)
		}
		got, err := clientcmd.Load([]byte(out))
		expect.NoError(t, err)
		same(t, api.Config{
			CurrentContext: got.CurrentContext,
			Contexts:       map[string]*api.Context{got.CurrentContext: {Cluster: "listproxy", AuthInfo: "pod", Namespace: tt.ns}},
			Clusters: map[string]*api.Cluster{"listproxy": {
				Server: "https://listproxy.proxies.svc", CertificateAuthorityData: []byte(want + want), TLSServerName: tt.name,
			}},
			AuthInfos: map[string]*api.AuthInfo{"pod": {TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}},
		}, *got)
	}
	for says, args := range map[string][]string{
		"--in-cluster needs --server":                  {"--in-cluster"},
		"--context does not go with --in-cluster":      append(args, "--context=me"),
		"--kubeconfig does not go with --in-cluster":   append(args, "--kubeconfig=me"),
		"--via does not go with --in-cluster":          append(args, "--via=server"),
		"--namespace goes with --in-cluster":           {"--namespace=team-a"},
		"--tls-server-name goes with --in-cluster":     {"--tls-server-name=me"},
		`--server "http://me" is not a URL that begin`: append(args, "--server=http://me"),
	} {
		_, _, err := clitest.Execute(t, NewCommand(), args...)
		clitest.Refused(t, err, says)
	}
}

// same compares kubeconfigs, whatever the files are that they come from.
func same(t *testing.T, want, got api.Config) {
	t.Helper()
	expect.Same(t, want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(api.Cluster{}, "LocationOfOrigin"),
		cmpopts.IgnoreFields(api.AuthInfo{}, "LocationOfOrigin"), cmpopts.IgnoreFields(api.Context{}, "LocationOfOrigin"))
}

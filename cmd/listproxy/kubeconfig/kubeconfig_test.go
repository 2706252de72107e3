package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

func contexts() api.Config {
	return api.Config{
		Contexts: map[string]*api.Context{
			"work":  {Cluster: "work", AuthInfo: "me", Namespace: "team-a"},
			"home":  {Cluster: "home", AuthInfo: "cert"},
			"plain": {Cluster: "plain", AuthInfo: "me"},
			"split": {Cluster: "nowhere", AuthInfo: "me"},
		},
		Clusters: map[string]*api.Cluster{
			"work":  {Server: "https://api.work:6443", CertificateAuthorityData: []byte("theirs"), TLSServerName: "api", ProxyURL: "http://proxy"},
			"home":  {Server: "https://api.home:6443", InsecureSkipTLSVerify: true},
			"plain": {Server: "http://api.plain"},
		},
		AuthInfos: map[string]*api.AuthInfo{
			"me":   {Token: "secret"},
			"cert": {ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")},
		},
	}
}

// TestKubeconfig: the context that is printed is the one in the file, but leads to the proxy; beside it is a
// hint if its user has a certificate.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "config")
	expect.NoError(t, clientcmd.WriteToFile(contexts(), source))
	ca, _, err := serve.SelfSigned(dir, nil)
	expect.NoError(t, err)
	text, err := os.ReadFile(ca) // #nosec G304 -- of this test
	expect.NoError(t, err)
	run := func(line string) (out, errs string, err error) {
		var told strings.Builder
		cmd := NewCommand()
		cmd.SetErr(&told)
		_, out, err = clitest.Execute(t, cmd, append([]string{"--kubeconfig", source}, strings.Fields(line)...)...)
		return out, told.String(), err
	}
	twice := " --certificate-authority " + ca + " --certificate-authority " + ca
	for line, want := range map[string]struct {
		context string
		cluster api.Cluster
		hint    string
	}{
		"--context=work --server=https://proxy:8443":                    {"work", api.Cluster{Server: "https://proxy:8443"}, ""},
		"--context=work --via=proxy-url --proxy-url=https://proxy:8444": {"work", api.Cluster{Server: "https://api.work:6443", ProxyURL: "https://proxy:8444"}, ""},
		"--context=home --server=https://proxy:8443":                    {"home", api.Cluster{Server: "https://proxy:8443"}, "--client-ca-file"},
	} {
		t.Run(line, func(t *testing.T) {
			out, errs, err := run(line + twice)
			expect.NoError(t, err)
			if !strings.Contains(errs, want.hint) || want.hint == "" && errs != "" {
				t.Errorf("the hint is %q", errs)
			}
			got, err := clientcmd.Load([]byte(out))
			expect.NoError(t, err)
			want.cluster.CertificateAuthorityData = []byte(string(text) + string(text))
			context := contexts().Contexts[want.context]
			same(t, api.Config{
				CurrentContext: want.context,
				Contexts:       map[string]*api.Context{want.context: context},
				Clusters:       map[string]*api.Cluster{want.context: &want.cluster},
				AuthInfos:      map[string]*api.AuthInfo{context.AuthInfo: contexts().AuthInfos[context.AuthInfo]},
			}, *got)
		})
	}
	for says, line := range map[string]string{
		"no current context: give --context":        "--certificate-authority " + ca,
		`the context "away"`:                        "--context=away --certificate-authority " + ca,
		`the context "split"`:                       "--context=split --certificate-authority " + ca, // names no cluster
		"the context's server":                      "--context=plain --via=proxy-url --certificate-authority " + ca,
		`--via "socks": choose server or proxy-url`: "--via=socks",
		`--server "http://proxy"`:                   "--server=http://proxy",
		`--server "proxy:8443" is not a URL`:        "--server=proxy:8443",
		`--proxy-url "http://proxy"`:                "--via=proxy-url --proxy-url=http://proxy",
		"--server goes with --via=server":           "--via=proxy-url --server=https://proxy --certificate-authority " + ca,
		"--proxy-url goes with --via=proxy-url":     "--proxy-url=https://proxy --certificate-authority " + ca,
		"name its file in --certificate-authority":  "--certificate-authority " + filepath.Join(dir, "none"),
		"there is no certificate":                   "--certificate-authority " + source,
	} {
		if out, _, err := run(line); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%s: %q, %v, want %q", line, out, err, says)
		}
	}
}

// TestKubeconfigThatIsNotThere: listproxy kubeconfig names the file that is missing.
func TestKubeconfigThatIsNotThere(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", none)
	_, _, err := clitest.Execute(t, NewCommand())
	clitest.Refused(t, err, "no kubeconfig", "KUBECONFIG is", none)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	if _, _, err := clitest.Execute(t, NewCommand()); err == nil {
		t.Error("accepted")
	}
}

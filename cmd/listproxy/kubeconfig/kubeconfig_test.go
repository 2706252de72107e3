package kubeconfig

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

func twoContexts() *api.Config {
	return &api.Config{
		CurrentContext: "work",
		Contexts: map[string]*api.Context{
			"work":  {Cluster: "work", AuthInfo: "me", Namespace: "team-a"},
			"home":  {Cluster: "home", AuthInfo: "cert"},
			"split": {Cluster: "nowhere", AuthInfo: "me"},
		},
		Clusters: map[string]*api.Cluster{
			"work": {Server: "https://api.work:6443", CertificateAuthorityData: []byte("theirs"), TLSServerName: "api", ProxyURL: "http://proxy"},
			"home": {Server: "https://api.home:6443", InsecureSkipTLSVerify: true},
		},
		AuthInfos: map[string]*api.AuthInfo{
			"me":   {Token: "secret"},
			"cert": {ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")},
		},
	}
}

func TestPointAt(t *testing.T) {
	server := pointing{via: viaServer, server: "https://proxy:8443", proxyURL: "https://proxy:8444", ca: []byte("ours")}
	proxyURL, plain := server, server
	proxyURL.via, plain.via, plain.proxyURL = viaProxyURL, viaProxyURL, "http://proxy:8444"
	for _, tt := range []struct {
		name, context string
		to            pointing
		cluster       api.Cluster
		user          api.AuthInfo
	}{
		{"the server", "work", server, api.Cluster{Server: "https://proxy:8443"}, api.AuthInfo{Token: "secret"}},
		{"the proxy", "work", proxyURL, api.Cluster{Server: "https://api.work:6443", ProxyURL: "https://proxy:8444"}, api.AuthInfo{Token: "secret"}},
		{"the proxy in plain HTTP", "work", plain, api.Cluster{Server: "https://api.work:6443", ProxyURL: "http://proxy:8444"}, api.AuthInfo{Token: "secret"}},
		{"a client certificate", "home", server, api.Cluster{Server: "https://proxy:8443"}, api.AuthInfo{ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := pointAt(twoContexts(), tt.context, tt.to)
			expect.NoError(t, err)
			tt.cluster.CertificateAuthorityData = []byte("ours")
			expect.Same(t, map[string]*api.Cluster{tt.context: &tt.cluster}, got.Clusters)
			current := got.Contexts[got.CurrentContext]
			expect.Same(t, map[string]*api.AuthInfo{current.AuthInfo: &tt.user}, got.AuthInfos)
			if got.CurrentContext != tt.context || len(got.Contexts) != 1 || current.Namespace != twoContexts().Contexts[tt.context].Namespace {
				t.Errorf("the context: %+v", got.Contexts)
			}
		})
	}
}

func TestPointAtNothing(t *testing.T) {
	server := pointing{via: viaServer, server: "https://proxy:8443"}
	for says, tt := range map[string]struct {
		change  func(*api.Config)
		context string
		to      pointing
	}{
		"--context": {func(c *api.Config) { c.CurrentContext = "" }, "", server},
		"away":      {func(*api.Config) {}, "away", server},
		"split":     {func(*api.Config) {}, "split", server}, // names no cluster
		"the context's server": {
			func(c *api.Config) { c.Clusters["work"].Server = "http://api.work" }, "", pointing{via: viaProxyURL, proxyURL: "https://proxy"},
		},
	} {
		cfg := twoContexts()
		tt.change(cfg)
		if _, err := pointAt(cfg, tt.context, tt.to); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error that says %q", err, says)
		}
	}
}

// TestKubeconfigCommand: a user with a certificate gets a kubeconfig, and a hint beside it.
func TestKubeconfigCommand(t *testing.T) {
	dir := t.TempDir()
	source, ca := filepath.Join(dir, "config"), filepath.Join(dir, "certs", "tls.crt")
	expect.NoError(t, clientcmd.WriteToFile(*twoContexts(), source))
	_, _, err := serve.SelfSigned(filepath.Dir(ca), nil)
	expect.NoError(t, err)
	run := func(args ...string) (out, errs string, err error) {
		var o, e strings.Builder
		cmd := NewCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(&o)
		cmd.SetErr(&e)
		cmd.SetArgs(append([]string{"--kubeconfig", source}, args...))
		err = cmd.Execute()
		return o.String(), e.String(), err
	}
	for context, hint := range map[string]string{"home": "--client-ca-file", "work": ""} {
		out, errs, err := run("--context", context, "--certificate-authority", ca, "--certificate-authority", ca, "--via=proxy-url")
		expect.NoError(t, err)
		if !strings.Contains(errs, hint) || hint == "" && errs != "" {
			t.Errorf("%s: the hint is %q", context, errs)
		}
		cfg, err := clientcmd.Load([]byte(out))
		expect.NoError(t, err)
		if n := strings.Count(string(cfg.Clusters[context].CertificateAuthorityData), "BEGIN CERTIFICATE"); n != 4 { // twice one and its CA
			t.Errorf("%d certificates, want 4", n)
		}
	}
	for says, args := range map[string][]string{
		`--via "socks": choose server or proxy-url`: {"--via=socks"},
		`--server "http://proxy"`:                   {"--server=http://proxy"},
		`--proxy-url "http://proxy"`:                {"--via=proxy-url", "--proxy-url=http://proxy"},
		"--server goes with --via=server":           {"--via=proxy-url", "--server=https://proxy", "--certificate-authority", ca},
		"--proxy-url goes with --via=proxy-url":     {"--proxy-url=https://proxy", "--certificate-authority", ca},
		"name its file in --certificate-authority":  {"--certificate-authority", filepath.Join(dir, "none")},
		"there is no certificate":                   {"--certificate-authority", source},
	} {
		if out, _, err := run(args...); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%v: %q, %v", args, out, err)
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

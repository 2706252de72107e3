package client

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

// kubeconfigOfTests returns a kubeconfig with several contexts and no current one.
func kubeconfigOfTests() api.Config {
	return api.Config{
		Contexts: map[string]*api.Context{
			"work":   {Cluster: "work", AuthInfo: "me", Namespace: "team-a"},
			"home":   {Cluster: "home", AuthInfo: "cert"},
			"plain":  {Cluster: "plain", AuthInfo: "me"},
			"broken": {Cluster: "not in this kubeconfig", AuthInfo: "me"},
		},
		Clusters: map[string]*api.Cluster{
			"work": {
				Server: "https://api.work:6443", CertificateAuthorityData: []byte("the API server's"), TLSServerName: "api",
				ProxyURL: "http://proxy",
			},
			"home":  {Server: "https://api.home:6443", InsecureSkipTLSVerify: true},
			"plain": {Server: "http://api.plain"},
		},
		AuthInfos: map[string]*api.AuthInfo{
			"me":   {Token: "secret"},
			"cert": {ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")},
		},
	}
}

// TestKubeconfig: listproxy kubeconfig prints the chosen context of a kubeconfig, with the proxy as the server or as the
// proxy-url, and with the given CA. It warns if the user has a client certificate.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "config")
	expect.NoError(t, clientcmd.WriteToFile(kubeconfigOfTests(), source))
	caPath, _, err := serve.SelfSigned(dir, nil)
	expect.NoError(t, err)
	ca, err := os.ReadFile(caPath) // #nosec G304 -- of this test
	expect.NoError(t, err)
	const noDefaultCA = "" // each case gives --certificate-authority
	for _, test := range []struct {
		name        string
		args        string // divided by spaces, without --kubeconfig and --certificate-authority
		wantContext string
		wantCluster api.Cluster
		wantWarning string
	}{
		{
			name:        "the proxy as the server",
			args:        "--context=work --server=https://proxy:8443",
			wantContext: "work",
			wantCluster: api.Cluster{Server: "https://proxy:8443", CertificateAuthorityData: ca},
		},
		{
			name:        "the proxy as the proxy-url",
			args:        "--context=work --via=proxy-url --proxy-url=https://proxy:8444",
			wantContext: "work",
			wantCluster: api.Cluster{
				Server: "https://api.work:6443", ProxyURL: "https://proxy:8444", CertificateAuthorityData: ca,
			},
		},
		{
			name:        "a user with a client certificate",
			args:        "--context=home --server=https://proxy:8443",
			wantContext: "home",
			wantCluster: api.Cluster{Server: "https://proxy:8443", CertificateAuthorityData: ca},
			wantWarning: "--client-ca-file",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append(strings.Fields(test.args), "--kubeconfig="+source, "--certificate-authority="+caPath)
			out, warning, err := clitest.Execute(t, NewKubeconfigCommand(noDefaultCA), args...)
			expect.NoError(t, err)
			expect.Says(t, warning, test.wantWarning)
			if test.wantWarning == "" {
				expect.Same(t, "", warning)
			}
			got, err := clientcmd.Load([]byte(out))
			expect.NoError(t, err)
			chosen := kubeconfigOfTests().Contexts[test.wantContext]
			expect.Same(t, api.Config{
				CurrentContext: test.wantContext,
				Contexts:       map[string]*api.Context{test.wantContext: chosen},
				Clusters:       map[string]*api.Cluster{chosen.Cluster: &test.wantCluster},
				AuthInfos:      map[string]*api.AuthInfo{chosen.AuthInfo: kubeconfigOfTests().AuthInfos[chosen.AuthInfo]},
			}, *got,
				cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(api.Cluster{}, "LocationOfOrigin"),
				cmpopts.IgnoreFields(api.AuthInfo{}, "LocationOfOrigin"),
				cmpopts.IgnoreFields(api.Context{}, "LocationOfOrigin"))
		})
	}
}

// TestKubeconfigRefuses: for a command line or a kubeconfig that cannot be right, listproxy kubeconfig returns an error that
// says what to change, and prints nothing.
func TestKubeconfigRefuses(t *testing.T) {
	dir := t.TempDir()
	source, missing := filepath.Join(dir, "config"), filepath.Join(dir, "missing")
	expect.NoError(t, clientcmd.WriteToFile(kubeconfigOfTests(), source))
	defaultCA, _, err := serve.SelfSigned(dir, nil)
	expect.NoError(t, err)
	t.Setenv("KUBECONFIG", missing) // for the case without --kubeconfig
	from := "--kubeconfig=" + source
	for args, wantSays := range map[string]string{
		"":                         "the kubeconfig (--kubeconfig, or $KUBECONFIG or ~/.kube/config) has no current context: give --context",
		"--kubeconfig=" + missing:  missing + ": no such file",
		from:                       "no current context: give --context",
		from + " --context=away":   `the context "away"`,
		from + " --context=broken": `the context "broken"`,
		from + " --context=plain --via=proxy-url":          "the context's server",
		from + " --via=socks":                              `--via "socks": choose server or proxy-url`,
		from + " --server=http://proxy":                    `--server "http://proxy"`,
		from + " --server=proxy:8443":                      `--server "proxy:8443" is not a URL`,
		from + " --via=proxy-url --proxy-url=http://proxy": `--proxy-url "http://proxy"`,
		from + " --via=proxy-url --server=https://proxy":   "--server goes with --via=server",
		from + " --proxy-url=https://proxy":                "--proxy-url goes with --via=proxy-url",
		from + " --certificate-authority=" + missing:       "name its file in --certificate-authority",
		from + " --certificate-authority=" + source:        "there is no certificate",
	} {
		t.Run(args, func(t *testing.T) {
			out, _, err := clitest.Execute(t, NewKubeconfigCommand(defaultCA), strings.Fields(args)...)
			clitest.Refused(t, err, wantSays)
			expect.Same(t, "", out)
		})
	}
}

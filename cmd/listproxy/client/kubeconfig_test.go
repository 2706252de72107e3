package client

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

func contexts() api.Config {
	return api.Config{
		Contexts: map[string]*api.Context{
			"work":      {Cluster: "work", AuthInfo: "me", Namespace: "team-a"},
			"home":      {Cluster: "home", AuthInfo: "cert"},
			"plain":     {Cluster: "plain", AuthInfo: "me"},
			"split":     {Cluster: "nowhere", AuthInfo: "me"},
			"listproxy": {Cluster: "listproxy", AuthInfo: "pod"},
		},
		Clusters: map[string]*api.Cluster{
			"work":  {Server: "https://api.work:6443", CertificateAuthorityData: []byte("theirs"), TLSServerName: "api", ProxyURL: "http://proxy"},
			"home":  {Server: "https://api.home:6443", InsecureSkipTLSVerify: true},
			"plain": {Server: "http://api.plain"},
		},
		AuthInfos: map[string]*api.AuthInfo{
			"me":   {Token: "secret"},
			"cert": {ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")},
			"pod":  {TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"},
		},
	}
}

// TestKubeconfig: the context that is printed is the one in the file, but leads to the proxy; beside it is a
// hint if its user has a certificate. The kubeconfig for pods is made without another one. It names the file
// with the token, and takes only certificates from the files with CAs, never a key.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	source, withKey := filepath.Join(dir, "config"), filepath.Join(dir, "with-key.pem")
	expect.NoError(t, clientcmd.WriteToFile(contexts(), source))
	caPath, keyPath, err := serve.SelfSigned(dir, nil)
	expect.NoError(t, err)
	certificate, err := os.ReadFile(caPath) // #nosec G304 -- of this test
	expect.NoError(t, err)
	key, err := os.ReadFile(keyPath) // #nosec G304 -- of this test
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(withKey, slices.Concat(key, certificate), 0o600))
	run := func(line string) (out, errs string, err error) {
		return clitest.Execute(t, NewKubeconfigCommand(caPath), strings.Fields(line)...)
	}
	ca := " --certificate-authority " + caPath
	from, pods := "--kubeconfig "+source, "--in-cluster --server=https://listproxy.svc --certificate-authority "+withKey
	for line, want := range map[string]struct {
		context, namespace string
		cluster            api.Cluster
		hint               string
	}{
		from + ca + " --context=work --server=https://proxy:8443": {"work", "team-a", api.Cluster{Server: "https://proxy:8443"}, ""},
		from + ca + " --context=work --via=proxy-url --proxy-url=https://proxy:8444": {
			"work", "team-a", api.Cluster{Server: "https://api.work:6443", ProxyURL: "https://proxy:8444"}, "",
		},
		from + ca + " --context=home --server=https://proxy:8443": {"home", "", api.Cluster{Server: "https://proxy:8443"}, "--client-ca-file"},
		pods: {"listproxy", "", api.Cluster{Server: "https://listproxy.svc", TLSServerName: "kubernetes.default.svc"}, ""},
		pods + " --tls-server-name= --namespace=team-a": {"listproxy", "team-a", api.Cluster{Server: "https://listproxy.svc"}, ""},
	} {
		t.Run(line, func(t *testing.T) {
			out, errs, err := run(line + ca)
			expect.NoError(t, err)
			if !strings.Contains(errs, want.hint) || want.hint == "" && errs != "" {
				t.Errorf("the hint is %q", errs)
			}
			got, err := clientcmd.Load([]byte(out))
			expect.NoError(t, err)
			want.cluster.CertificateAuthorityData = slices.Concat(certificate, certificate)
			context := contexts().Contexts[want.context]
			context.Namespace = want.namespace
			expect.Same(t, api.Config{
				CurrentContext: want.context,
				Contexts:       map[string]*api.Context{want.context: context},
				Clusters:       map[string]*api.Cluster{context.Cluster: &want.cluster},
				AuthInfos:      map[string]*api.AuthInfo{context.AuthInfo: contexts().AuthInfos[context.AuthInfo]},
			}, *got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(api.Cluster{}, "LocationOfOrigin"),
				cmpopts.IgnoreFields(api.AuthInfo{}, "LocationOfOrigin"), cmpopts.IgnoreFields(api.Context{}, "LocationOfOrigin"))
		})
	}
	for line, says := range map[string]string{
		from + ca:                                                       "no current context: give --context",
		from + ca + " --context=away":                                   `the context "away"`,
		from + ca + " --context=split":                                  `the context "split"`, // names no cluster
		from + ca + " --context=plain --via=proxy-url":                  "the context's server",
		from + " --via=socks":                                           `--via "socks": choose server or proxy-url`,
		from + " --server=http://proxy":                                 `--server "http://proxy"`,
		from + " --server=proxy:8443":                                   `--server "proxy:8443" is not a URL`,
		from + " --via=proxy-url --proxy-url=http://proxy":              `--proxy-url "http://proxy"`,
		from + ca + " --via=proxy-url --server=https://proxy":           "--server goes with --via=server",
		from + ca + " --proxy-url=https://proxy":                        "--proxy-url goes with --via=proxy-url",
		from + " --certificate-authority " + filepath.Join(dir, "none"): "name its file in --certificate-authority",
		from + " --certificate-authority " + source:                     "there is no certificate",
		"--in-cluster":                                                  "--in-cluster needs --server",
		pods + " --context=me":                                          "--context does not go with --in-cluster",
		pods + " --kubeconfig=me":                                       "--kubeconfig does not go with --in-cluster",
		pods + " --via=server":                                          "--via does not go with --in-cluster",
		"--namespace=team-a":                                            "--namespace goes with --in-cluster",
		"--tls-server-name=me":                                          "--tls-server-name goes with --in-cluster",
		pods + " --server=http://me":                                    `--server "http://me" is not a URL that begin`,
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
	_, _, err := clitest.Execute(t, NewKubeconfigCommand(""))
	clitest.Refused(t, err, "no kubeconfig", "KUBECONFIG", none)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	if _, _, err := clitest.Execute(t, NewKubeconfigCommand("")); err == nil {
		t.Error("accepted")
	}
}

package controlplane

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// kubectlWait is the time that a cancelled kubectl has to close its output.
const kubectlWait = 2 * time.Second

// URL returns the address at which the first API server listens: https, host and port. Restarts do not change it.
func (cp *ControlPlane) URL() string { return cp.First.URL() }

// EtcdURL returns the client URL of etcd: http, host and port. Restarts do not change it.
func (cp *ControlPlane) EtcdURL() string { return "http://" + cp.etcdPort.address() }

// CA returns the certificate authority, in PEM, that signed the API server's certificate and the
// client certificates.
func (cp *ControlPlane) CA() []byte { return cp.credentials.issuer.PEM() }

// CAPath returns the path of a file with [ControlPlane.CA].
func (cp *ControlPlane) CAPath() string { return filepath.Join(cp.dir, caFile) }

// ClientAuthority returns the CA whose client certificates the API server accepts.
func (cp *ControlPlane) ClientAuthority() *Authority { return cp.credentials.issuer }

// Token returns the bearer token of a user, or "" for one who has none.
func (cp *ControlPlane) Token(user string) string { return cp.credentials.tokens[user] }

// RESTConfig returns a configuration with the user's token, and without a client-side rate limit. For [Anonymous] it has no
// token. For any other user without a token RESTConfig panics, since a mistyped name would otherwise be anonymous.
func (cp *ControlPlane) RESTConfig(user string) *rest.Config {
	token, ok := cp.credentials.tokens[user]
	if !ok && user != Anonymous {
		panic("no user has the name and a token: " + user)
	}
	return &rest.Config{Host: cp.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: cp.CA()}, QPS: -1}
}

// CertConfig returns a configuration with the client certificate of [Admin] or [CertUser].
func (cp *ControlPlane) CertConfig(user string) *rest.Config {
	config, pair := cp.RESTConfig(Anonymous), cp.credentials.certs[user]
	config.CertData, config.KeyData = pair.cert, pair.key
	return config
}

// IssueCert issues a client certificate for a user with groups, and its key, both in PEM. The user need not be one of
// [Users].
func (cp *ControlPlane) IssueCert(user string, groups ...string) (cert, key []byte, err error) {
	return cp.credentials.issuer.Issue(pkix.Name{CommonName: user, Organization: groups}, nil)
}

// IssueServingCert issues a serving certificate of the cluster's CA for host names, and its key.
func (cp *ControlPlane) IssueServingCert(names ...string) (cert, key []byte, err error) {
	return cp.credentials.issuer.issueServing(names...)
}

// KubeconfigPath returns the path of the user's kubeconfig, a file with mode 0600.
func (cp *ControlPlane) KubeconfigPath(user string) string {
	return filepath.Join(cp.dir, kubeconfigFolder, user+".yaml")
}

// WriteKubeconfig writes a configuration with a token or a certificate, or neither, to a file with mode 0600.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "it" // of the only context, cluster and user
	return clientcmd.WriteToFile(api.Config{
		CurrentContext: name,
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters:       map[string]*api.Cluster{name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: cfg.BearerToken, ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}},
	}, path)
}

// Environment returns this process's environment with a kubeconfig ("": none), and without other settings of Kubernetes and
// Helm. A separate home hides the user's ~/.kube, and discovery of other control planes that is cached there.
func Environment(kubeconfig, home string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KUBE") && !strings.HasPrefix(variable, "HELM_") && !strings.HasPrefix(variable, "HOME=") {
			env = append(env, variable)
		}
	}
	return append(env, "KUBECONFIG="+kubeconfig, "HOME="+home)
}

// Apply applies a manifest in YAML, as [Admin].
func (cp *ControlPlane) Apply(ctx context.Context, manifest string) error {
	_, err := cp.Kubectl(ctx, manifest, "apply", "--validate=false", "-f", "-")
	return err
}

// Kubectl runs kubectl as [Admin], with a standard input, and returns its standard output. An error
// has the end of its standard error.
func (cp *ControlPlane) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, cp.paths.Kubectl, args...) // #nosec G204 -- the caller's own command
	cmd.WaitDelay = kubectlWait
	cmd.Dir = cp.dir
	cmd.Env = Environment(cp.KubeconfigPath(Admin), filepath.Join(cp.dir, kubectlHomeFolder))
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", args[0], err, binaries.Tail(stderr.Bytes()))
	}
	return stdout.String(), nil
}

package client

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

const (
	// tokenFile is where kubelets put, and renew, the token of a pod's service account.
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" // #nosec G101 -- a path

	// apiServerName is the name of API servers that is in all of their certificates.
	apiServerName = "kubernetes.default.svc"
)

// inCluster says what the kubeconfig of pods is to have. It goes into ConfigMaps, so there is
// nothing secret in it.
type inCluster struct {
	wanted        bool
	tlsServerName string
	namespace     string
}

// check returns which flags do not go together.
func (in inCluster) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if !in.wanted {
		for _, flag := range []string{"tls-server-name", "namespace"} {
			if changed(flag) {
				return fmt.Errorf("--%s goes with --in-cluster", flag)
			}
		}
		return nil
	}
	for _, flag := range []string{"kubeconfig", "context", "via", "proxy-url"} {
		if changed(flag) {
			return fmt.Errorf("--%s does not go with --in-cluster, which takes nothing from a kubeconfig", flag)
		}
	}
	if !changed("server") {
		return errors.New("--in-cluster needs --server: give the URL of listproxy's Service, https://listproxy.listproxy.svc for example")
	}
	return nil
}

// config returns a kubeconfig for pods with the server and the CAs in files. It takes only certificates from the
// files, so that no key gets into it.
func (in inCluster) config(server string, caPaths []string) (*api.Config, error) {
	all, err := readCAs(caPaths)
	if err != nil {
		return nil, err
	}
	certificates, err := cert.ParseCertsPEM(all)
	if err != nil {
		return nil, fmt.Errorf("--certificate-authority: %w", err)
	}
	ca, err := cert.EncodeCertificates(certificates...)
	if err != nil {
		return nil, err
	}
	return &api.Config{
		CurrentContext: "listproxy",
		Clusters: map[string]*api.Cluster{
			"listproxy": {Server: server, CertificateAuthorityData: ca, TLSServerName: in.tlsServerName},
		},
		AuthInfos: map[string]*api.AuthInfo{"pod": {TokenFile: tokenFile}},
		Contexts: map[string]*api.Context{
			"listproxy": {Cluster: "listproxy", AuthInfo: "pod", Namespace: in.namespace},
		},
	}, nil
}

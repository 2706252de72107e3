package client

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

const (
	// tokenFile is the file in which kubelets keep the token of a pod's service account.
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" // #nosec G101 -- a path

	// apiServerName is a name that the certificates of all API servers have.
	apiServerName = "kubernetes.default.svc"
)

// inCluster has the flags for a kubeconfig for pods. Such a kubeconfig goes into ConfigMaps, so it holds no secret.
type inCluster struct {
	wanted        bool
	tlsServerName string
	namespace     string
}

// check returns an error if flags do not go together.
func (pods inCluster) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if !pods.wanted {
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
		return errors.New("--in-cluster needs --server: give the URL of listproxy's Service, " +
			"https://listproxy.listproxy.svc for example")
	}
	return nil
}

// config returns a kubeconfig for pods with the server, and with the CAs in the files caPaths. It takes only the
// certificates from the files: a private key in one of them must not get into a ConfigMap.
func (pods inCluster) config(server string, caPaths []string) (*api.Config, error) {
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
			"listproxy": {Server: server, CertificateAuthorityData: ca, TLSServerName: pods.tlsServerName},
		},
		AuthInfos: map[string]*api.AuthInfo{"pod": {TokenFile: tokenFile}},
		Contexts: map[string]*api.Context{
			"listproxy": {Cluster: "listproxy", AuthInfo: "pod", Namespace: pods.namespace},
		},
	}, nil
}

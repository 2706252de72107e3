package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// newKubeconfigCommand makes the command that points a client at the proxy.
func newKubeconfigCommand() *cobra.Command {
	var kubeconfig, contextName, server, caPath string
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig for the current context that points at the proxy",
		Long: `Prints a kubeconfig that is the current context's, with the proxy as its server and the
proxy's CA. The user's own credentials stay in it: the proxy has none to lend.

  listproxy kubeconfig > proxy.kubeconfig
  kubectl --kubeconfig proxy.kubeconfig get pods`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ca, err := os.ReadFile(caPath)
			if err != nil {
				return fmt.Errorf("the proxy's CA: %w: start listproxy once, or give --certificate-authority", err)
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			cfg, err := rules.Load()
			if err != nil {
				return fmt.Errorf("the kubeconfig to take the context from (--kubeconfig): %w", err)
			}
			pointed, err := pointAt(cfg, contextName, server, ca)
			if err != nil {
				return err
			}
			text, err := clientcmd.Write(*pointed)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&kubeconfig, "kubeconfig", "", "`file` to take the context from; $KUBECONFIG or ~/.kube/config without it")
	fs.StringVar(&contextName, "context", "", "`name` of the context; the current one without it")
	fs.StringVar(&server, "server", "https://127.0.0.1:8443", "`URL` of the proxy")
	fs.StringVar(&caPath, "certificate-authority", filepath.Join(defaultCertDir(), "ca.crt"), "`file` with the CA of the proxy's certificate")
	return cmd
}

// pointAt returns one context of cfg with the proxy as its server.
func pointAt(cfg *api.Config, contextName, server string, ca []byte) (*api.Config, error) {
	if contextName != "" {
		cfg.CurrentContext = contextName
	}
	if cfg.CurrentContext == "" {
		return nil, errors.New("the kubeconfig has no current context: give --context")
	}
	if err := api.MinifyConfig(cfg); err != nil {
		return nil, fmt.Errorf("the context %q: %w", cfg.CurrentContext, err)
	}
	if err := api.FlattenConfig(cfg); err != nil {
		return nil, fmt.Errorf("the context %q: %w", cfg.CurrentContext, err)
	}
	current := cfg.Contexts[cfg.CurrentContext]
	if user := cfg.AuthInfos[current.AuthInfo]; user != nil && len(user.ClientCertificateData) > 0 && user.Token == "" {
		return nil, fmt.Errorf("the user %q of this context has a client certificate, which ends at the proxy: use a context with a token", current.AuthInfo)
	}
	cluster := cfg.Clusters[current.Cluster]
	cluster.Server = server
	cluster.CertificateAuthorityData = ca
	cluster.InsecureSkipTLSVerify = false
	cluster.TLSServerName = ""
	cluster.ProxyURL = ""
	return cfg, nil
}

package client

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// The values of --via.
const (
	viaServer   = "server"
	viaProxyURL = "proxy-url"
)

// proxyRoute says how a client reaches the proxy: as the server of its kubeconfig, or by its proxy-url.
type proxyRoute struct {
	way      string // viaServer or viaProxyURL
	server   string // the proxy's URL, used with viaServer
	proxyURL string // the proxy's URL, used with viaProxyURL
}

// NewKubeconfigCommand returns the command that prints a kubeconfig for clients of the proxy. defaultCA is the file of
// the self-signed certificate that a listproxy on the user's own machine makes.
func NewKubeconfigCommand(defaultCA string) *cobra.Command {
	var kubeconfig, contextName, caPath string
	var route proxyRoute
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig for the current context that points at the proxy",
		Long: `Prints a copy of the current context's kubeconfig that leads to the proxy instead. The user's
own credentials stay in it. There are two ways:

  --via=server     the proxy is the server, instead of the API server
  --via=proxy-url  the server stays the API server's own URL, and the proxy is its proxy-url.
                   listproxy must run with --connect-port, and must know the name in that URL:
                   from its own --kubeconfig or from --connect-hosts

The kubeconfig has your credentials in it, so let nobody else read it:

  (umask 077; listproxy kubeconfig > proxy.kubeconfig)
  listproxy try --kubeconfig proxy.kubeconfig
  kubectl --kubeconfig proxy.kubeconfig get --raw '/api/v1/namespaces?resourceVersion=0'`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			// Each way has a flag of the same name for the URL. Only the flag of the chosen way has an effect.
			for _, way := range []string{viaServer, viaProxyURL} {
				if cmd.Flags().Changed(way) && route.way != way {
					return fmt.Errorf("--%s goes with --via=%s", way, way)
				}
			}
			return route.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := kubeconfigLoader(kubeconfig, "").RawConfig() // with all contexts
			if err != nil {
				return fmt.Errorf("the kubeconfig to take the context from (--kubeconfig, or %s): %w", usualKubeconfig, err)
			}
			ca, err := readCA(caPath)
			if err != nil {
				return err
			}
			if err := pointAtProxy(&cfg, contextName, route, ca); err != nil {
				return err
			}
			text, err := clientcmd.Write(cfg)
			if err != nil {
				return err
			}
			warnOfCertificate(cmd.ErrOrStderr(), &cfg)
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&kubeconfig, "kubeconfig", "",
		"`file` to take the context from; without it, "+usualKubeconfig)
	fs.StringVar(&contextName, "context", "", "`name` of the context; without it, the current one")
	fs.StringVar(&route.way, "via", viaServer, "`way` to the proxy: server or proxy-url")
	fs.StringVar(&route.server, viaServer, "https://127.0.0.1:8443", "`URL` of the proxy, with --via=server")
	fs.StringVar(&route.proxyURL, viaProxyURL, "https://127.0.0.1:8444",
		"`URL` of the proxy's --connect-port, with --via=proxy-url")
	fs.StringVar(&caPath, "certificate-authority", defaultCA,
		"`file` with the CA of the proxy's certificate, which it also shows inside tunnels; it can have several CAs")
	return cmd
}

// check returns an error if --via, or the URL that belongs to it, is not valid.
func (r proxyRoute) check() error {
	switch r.way {
	case viaServer:
		return checkURL("--server", r.server)
	case viaProxyURL:
		return checkURL("--proxy-url", r.proxyURL)
	}
	return fmt.Errorf("--via %q: choose %s or %s", r.way, viaServer, viaProxyURL)
}

// readCA returns the content of a file, which must have a certificate as PEM.
func readCA(path string) ([]byte, error) {
	ca, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the proxy's CA: %w: name its file in --certificate-authority, or start listproxy here once "+
			"and leave the flag out", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("--certificate-authority %s: there is no certificate (PEM) in it", path)
	}
	return ca, nil
}

// pointAtProxy reduces cfg to the named context, or to the current one if contextName is empty, and points that context
// at the proxy. ca has the CAs of the proxy's certificate, PEM.
func pointAtProxy(cfg *api.Config, contextName string, route proxyRoute, ca []byte) error {
	if contextName != "" {
		cfg.CurrentContext = contextName
	}
	if cfg.CurrentContext == "" {
		return fmt.Errorf("the kubeconfig (--kubeconfig, or %s) has no current context: give --context", usualKubeconfig)
	}
	if err := api.MinifyConfig(cfg); err != nil {
		return fmt.Errorf("the context %q: %w", cfg.CurrentContext, err)
	}
	// Files that cfg names become data: their paths may be relative to the old kubeconfig.
	if err := api.FlattenConfig(cfg); err != nil {
		return fmt.Errorf("the context %q: %w", cfg.CurrentContext, err)
	}
	cluster := cfg.Clusters[cfg.Contexts[cfg.CurrentContext].Cluster]
	switch route.way {
	case viaServer:
		cluster.Server = route.server
		cluster.ProxyURL = ""
	case viaProxyURL:
		// Go's clients open tunnels only to https servers; a request to an http server would not be a CONNECT.
		if err := checkURL("the context's server", cluster.Server); err != nil {
			return err
		}
		cluster.ProxyURL = route.proxyURL
	}
	// Go's clients have one set of TLS settings for an https proxy and for the server behind it. So these settings are for the
	// proxy's certificate, and no longer for the API server's.
	cluster.CertificateAuthorityData = ca
	cluster.InsecureSkipTLSVerify = false
	cluster.TLSServerName = ""
	return nil
}

// checkURL returns an error if s is not an https URL with a host. The error calls s by name.
func checkURL(name, s string) error {
	if u, err := url.Parse(s); err == nil && u.Host != "" && u.Scheme == "https" {
		return nil
	}
	return fmt.Errorf("%s %q is not a URL that begins with https:// and names a host", name, s)
}

// warnOfCertificate writes a warning if the user of the current context has a client certificate. The proxy terminates TLS,
// so kube-apiserver does not see the certificate.
func warnOfCertificate(w io.Writer, cfg *api.Config) {
	name := cfg.Contexts[cfg.CurrentContext].AuthInfo
	if user := cfg.AuthInfos[name]; user != nil && len(user.ClientCertificateData) > 0 {
		_, _ = fmt.Fprintf(w, "listproxy: the user %q has a client certificate, which listproxy accepts only with "+
			"--client-ca-file. Without the flag, this user is anonymous.\n", name)
	}
}

// usualKubeconfig names the files that are read if no --kubeconfig is given.
const usualKubeconfig = "$KUBECONFIG or ~/.kube/config"

// kubeconfigLoader returns a loader of the kubeconfig at path, or of [usualKubeconfig] if path is empty. The kubeconfig is
// empty if none of the usual files exists. The loader's ClientConfig is for the named context, or for the current one if
// contextName is empty. Its RawConfig has all contexts.
func kubeconfigLoader(path, contextName string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

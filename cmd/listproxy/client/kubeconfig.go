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

// proxyTarget is the place in a kubeconfig at which a URL of the proxy is set.
type proxyTarget struct {
	via      string // viaServer or viaProxyURL
	server   string // the proxy's URL with viaServer
	proxyURL string // the proxy's URL with viaProxyURL
}

// NewKubeconfigCommand returns the command that prints a kubeconfig for clients of the proxy. defaultCA is the file of
// the self-signed certificate that a listproxy on the user's own machine makes.
func NewKubeconfigCommand(defaultCA string) *cobra.Command {
	var kubeconfig, contextName string
	var caPaths []string
	var target proxyTarget
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig for the current context that points at the proxy",
		Long: `Prints a kubeconfig like the current context's that leads to the proxy. The user's own
credentials stay in it. There are two ways:

  --via=server     the proxy is the server, instead of the API server
  --via=proxy-url  the server stays the API server's own URL, and the proxy is its proxy-url.
                   listproxy must run with --connect-port, and must know the name in that URL:
                   from its own --kubeconfig or from --connect-hosts

It has your credentials in it, so let nobody else read it:

  (umask 077; listproxy kubeconfig > proxy.kubeconfig)
  listproxy try --kubeconfig proxy.kubeconfig
  kubectl --kubeconfig proxy.kubeconfig get --raw '/api/v1/namespaces?resourceVersion=0'`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			for flag, via := range map[string]string{"server": viaServer, "proxy-url": viaProxyURL} {
				if cmd.Flags().Changed(flag) && target.via != via {
					return fmt.Errorf("--%s goes with --via=%s", flag, via)
				}
			}
			return target.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadKubeconfig(kubeconfig, "").RawConfig()
			if err != nil {
				return fmt.Errorf("the kubeconfig to take the context from (--kubeconfig, or %s): %w", usualKubeconfig, err)
			}
			ca, err := readCAs(caPaths)
			if err != nil {
				return err
			}
			if err := pointAtProxy(&cfg, contextName, target, ca); err != nil {
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
	fs.StringVar(&target.via, "via", viaServer, "`way` to the proxy: server or proxy-url")
	fs.StringVar(&target.server, "server", "https://127.0.0.1:8443", "`URL` of the proxy, with --via=server")
	fs.StringVar(&target.proxyURL, "proxy-url", "https://127.0.0.1:8444",
		"`URL` of the proxy's --connect-port, with --via=proxy-url")
	fs.StringArrayVar(&caPaths, "certificate-authority", []string{defaultCA},
		"`file` with the CA of the proxy's certificate, which is the same inside tunnels; repeat it for several, as while a "+
			"CA is replaced by another")
	return cmd
}

// check returns an error if --via, or the URL that belongs to it, is not valid.
func (target proxyTarget) check() error {
	switch target.via {
	case viaServer:
		return checkURL("--server", target.server)
	case viaProxyURL:
		return checkURL("--proxy-url", target.proxyURL)
	}
	return fmt.Errorf("--via %q: choose %s or %s", target.via, viaServer, viaProxyURL)
}

// readCAs returns the concatenated contents of the files. Each file must have a certificate as PEM.
func readCAs(paths []string) ([]byte, error) {
	var all []byte
	for _, path := range paths {
		ca, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the proxy's CA: %w: name its file in --certificate-authority, or start listproxy here once "+
				"and leave the flag out", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("--certificate-authority %s: there is no certificate (PEM) in it", path)
		}
		if len(all) > 0 && all[len(all)-1] != '\n' {
			all = append(all, '\n')
		}
		all = append(all, ca...)
	}
	return all, nil
}

// pointAtProxy reduces cfg to the named context, or to the current one if contextName is empty, and points that context
// at the proxy. ca has the CAs of the proxy's certificate, PEM.
func pointAtProxy(cfg *api.Config, contextName string, target proxyTarget, ca []byte) error {
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
	switch target.via {
	case viaServer:
		cluster.Server = target.server
		cluster.ProxyURL = ""
	case viaProxyURL:
		// Go's clients open tunnels only to https servers; a request to an http server would not be a CONNECT.
		if err := checkURL("the context's server", cluster.Server); err != nil {
			return err
		}
		cluster.ProxyURL = target.proxyURL
	}
	// Go's clients use the same CAs for an https proxy and for the server behind it, and check the name to which they
	// connect. So the settings for the API server's certificate must go.
	cluster.CertificateAuthorityData = ca
	cluster.InsecureSkipTLSVerify = false
	cluster.TLSServerName = ""
	return nil
}

// checkURL returns an error if s is not an https URL with a host. name says in the error what s is.
func checkURL(name, s string) error {
	if u, err := url.Parse(s); err == nil && u.Host != "" && u.Scheme == "https" {
		return nil
	}
	return fmt.Errorf("%s %q is not a URL that begins with https:// and names a host", name, s)
}

// warnOfCertificate writes a warning if the user of the current context has a client certificate. The proxy terminates
// TLS, so kube-apiserver does not see the certificate.
func warnOfCertificate(w io.Writer, cfg *api.Config) {
	name := cfg.Contexts[cfg.CurrentContext].AuthInfo
	if user := cfg.AuthInfos[name]; user != nil && len(user.ClientCertificateData) > 0 {
		_, _ = fmt.Fprintf(w, "listproxy: the user %q has a client certificate, which listproxy accepts only with "+
			"--client-ca-file. Without the flag, this user is anonymous.\n", name)
	}
}

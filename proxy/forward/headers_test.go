package forward

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestNothingOfTheProxysOwnIdentity sends an anonymous request through a
// forwarder whose configuration has every credential there is.
func TestNothingOfTheProxysOwnIdentity(t *testing.T) {
	type seen struct {
		Header       http.Header
		Certificates int
	}
	got := make(chan seen, 1)
	upstream := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) {
		got <- seen{r.Header, len(r.TLS.PeerCertificates)}
	})
	certPath, keyPath, err := serve.SelfSigned(t.TempDir(), nil)
	expect.NoError(t, err)
	dir := t.TempDir()
	ran := filepath.Join(dir, "plugin-ran")
	certificate := func(c *rest.Config) {
		c.CertFile, c.KeyFile = certPath, keyPath
	}
	tests := map[string]func(*rest.Config){
		"bearer token":       func(c *rest.Config) { c.BearerToken = "proxys-own" },
		"bearer token file":  func(c *rest.Config) { c.BearerTokenFile = certPath },
		"basic":              func(c *rest.Config) { c.Username, c.Password = "proxy", "own" },
		"client certificate": certificate,
		"impersonation":      func(c *rest.Config) { c.Impersonate.UserName = "system:admin" },
		"wrapped transport": func(c *rest.Config) {
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					r.Header.Set("Authorization", "Bearer proxys-own")
					return rt.RoundTrip(r)
				})
			})
		},
		"exec plugin": func(c *rest.Config) {
			c.ExecProvider = &clientcmdapi.ExecConfig{
				Command: "touch", Args: []string{ran}, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		},
		"client certificate and token": func(c *rest.Config) { certificate(c); c.BearerToken = "proxys-own" },
	}
	for name, configure := range tests {
		t.Run(name, func(t *testing.T) {
			config := upstream.Config()
			configure(config)
			front := startProxy(t, newForwarder(t, config), false)
			for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
				proxytest.SendRaw(t, front, "GET /api HTTP/1.1\r\nHost: x\r\n"+upgrade+"\r\n")
				want := seen{Header: http.Header{"X-Forwarded-For": {"127.0.0.1"}}}
				if upgrade != "" {
					want.Header["Connection"], want.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
				}
				expect.Same(t, want, <-got)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the credential plugin was run")
			}
		})
	}
}

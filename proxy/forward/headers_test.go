package forward

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

func TestConnectionMustNotListIdentity(t *testing.T) {
	upstream := proxytest.StartUpstream(t, true, func(http.ResponseWriter, *http.Request) {
		t.Error("the request was forwarded")
	})
	front := startProxy(t, newForwarder(t, upstream.Config()), false)
	for _, option := range []string{"Impersonate-User", "close, impersonate-extra-x", "authorization"} {
		res, _, _ := proxytest.SendRaw(t, front, "GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer front\r\n"+
			"Impersonate-User: alice\r\nConnection: "+option+"\r\n\r\n")
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("Connection: %s: status %s, want 400", option, res.Status)
		}
	}
}

func TestResponseHeadersAreTheUpstreams(t *testing.T) {
	upstreamsOwn := http.Header{
		"Audit-Id": {"1"}, "Cache-Control": {"no-cache, private"}, "Warning": {"299 - \"a\"", "299 - \"b\""},
		"Cache-Status": {"near-origin; hit"}, "X-Kubernetes-Pf-Flowschema-Uid": {"2"}, "Content-Length": {"4"},
	}
	upstream := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), upstreamsOwn)
		// What net/http would add by itself.
		w.Header()["Date"] = nil
		w.Header()["Content-Type"] = nil
		_, _ = w.Write([]byte("body"))
	})
	forwarder := newForwarder(t, upstream.Config())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Status", "listproxy; fwd=bypass; detail=not-list")
		forwarder.ServeHTTP(w, r)
	})
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			front := startProxy(t, handler, http2)
			res := proxytest.Get(t, front.Client(), front.URL+"/api")
			want := upstreamsOwn.Clone()
			want["Cache-Status"] = []string{"near-origin; hit", "listproxy; fwd=bypass; detail=not-list"}
			if diff := cmp.Diff(want, res.Header); diff != "" {
				t.Errorf("header at the client (-want +got):\n%s", diff)
			}
		})
	}
}

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
				if diff := cmp.Diff(want, <-got); diff != "" {
					t.Errorf("at the upstream (-want +got):\n%s", diff)
				}
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the credential plugin was run")
			}
		})
	}
}

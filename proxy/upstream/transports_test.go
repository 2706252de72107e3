package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAddress: the upstream's address is read as client-go reads it; without TLS, or with credentials in it, it is
// refused.
func TestAddress(t *testing.T) {
	upstream := proxytest.StartUpstream(t, true, func(http.ResponseWriter, *http.Request) {})
	for host, want := range map[string]string{ // empty: it is refused
		"https://api:6443":                  "https://api:6443",
		"https://api:6443/":                 "https://api:6443",
		"https://rancher/k8s/clusters/c-1/": "https://rancher/k8s/clusters/c-1",
		"https://host/a%2Fb":                "https://host/a%2Fb",
		"api:6443":                          "https://api:6443", // the CA means https, as in client-go
		"":                                  "https://localhost",
		"http://api:8080":                   "",
		"https://u:hunter2@api":             "",
		"https://api?token=hunter2":         "",
		"https://u:hunter2@api:bad port":    "",
		"api/prefix":                        "",
	} {
		config := upstream.Config()
		config.Host = host
		up, err := New(config)
		switch {
		case (err != nil) != (want == ""):
			t.Errorf("%q: %v", host, err)
		case err != nil:
			proxytest.AssertNotContains(t, err.Error(), "hunter2")
		default:
			expect.Same(t, want, up.URL().String())
			// Behind a path there may be other API servers, which a caller's path could reach.
			if err := up.Impersonate(config); (err != nil) != (up.URL().Path != "") {
				t.Errorf("%q, with listproxy's own credentials: %v", host, err)
			}
		}
	}
}

// impersonating returns Transports to api that impersonate users with the token "of-listproxy".
func impersonating(t *testing.T, api proxytest.UpstreamServer) *Transports {
	t.Helper()
	cfg := api.Config()
	cfg.BearerToken = "of-listproxy"
	up, err := New(cfg)
	expect.NoError(t, err)
	expect.NoError(t, up.Impersonate(cfg))
	return up
}

// TestSentAsTheCaller: a request of listproxy's own making has the caller's credentials and none of
// listproxy's; or listproxy's, and names the user. It has a connection of its own: not that of callers' requests,
// which is kept although nothing comes on it for long, nor, before the caller is accepted, that of all reviews.
func TestSentAsTheCaller(t *testing.T) {
	var got http.Header
	var on string
	api := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) { got, on = r.Header.Clone(), r.RemoteAddr })
	up := impersonating(t, api)
	identities := auth.NewAuthenticator(nil)
	for name, tt := range map[string]struct {
		id          auth.Identity
		want        [3]string
		connections int
	}{
		"by a token":       {proxytest.Identify(identities, "Bearer of-a-caller"), [3]string{"Bearer of-a-caller"}, 3},
		"by a certificate": {proxytest.Jane(auth.NewAuthenticator(nil)), [3]string{"Bearer of-listproxy", "jane", user.AllAuthenticated}, 2},
	} {
		connections := map[string]bool{}
		for range 3 { // the first one shows that the caller is accepted
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, up.URL().String(), nil)
			expect.NoError(t, err)
			res, err := up.SendAs(t.Context(), tt.id, r)
			expect.NoError(t, err)
			expect.NoError(t, res.Body.Close())
			if has := [3]string{got.Get("Authorization"), got.Get("Impersonate-User"), got.Get("Impersonate-Group")}; has != tt.want {
				t.Errorf("%s: %q", name, has)
			}
			connections[on] = true
			expect.NoError(t, get(t, up, up.RoundTripper(tt.id, &kubehttp.Request{}), tt.id, ""))
			connections[on] = true
		}
		if len(connections) != tt.connections {
			t.Errorf("%s: %d connections, want %d", name, len(connections), tt.connections)
		}
	}
}

// TestCallersAreSpread: each caller's requests are on one connection, and those of others mostly on
// other ones.
func TestCallersAreSpread(t *testing.T) {
	const callers = 64 // of a few lanes, so many use more than half
	var connections sync.Map
	api := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) { connections.Store(r.RemoteAddr, true) })
	up := impersonating(t, api)
	identities := auth.NewAuthenticator(nil)
	tokenOf := func(subject, signature string) auth.Identity {
		return proxytest.Identify(identities, proxytest.WebToken(fmt.Sprintf(`{"iss":"us","sub":%q}`, subject), signature))
	}
	for name, tt := range map[string]struct {
		caller   func(i int) auth.Identity
		min, max int
	}{
		"tokens":      {func(i int) auth.Identity { return proxytest.Identify(identities, fmt.Sprint("Bearer ", i)) }, lanes / 2, lanes},
		"subjects":    {func(i int) auth.Identity { return tokenOf(fmt.Sprint(i), "x") }, lanes / 2, lanes},
		"one subject": {func(i int) auth.Identity { return tokenOf("one", fmt.Sprint(i)) }, 1, 1},
		"certificates": {func(i int) auth.Identity {
			return identities.OfUser(&user.DefaultInfo{Name: fmt.Sprint(i), Groups: []string{"g"}})
		}, lanes / 2, lanes},
	} {
		connections.Clear()
		for i := range callers {
			id := tt.caller(i)
			up.Answered(id, false, http.MethodGet, http.StatusOK)
			for range 2 {
				expect.NoError(t, get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, ""))
			}
		}
		var used int
		connections.Range(func(any, any) bool { used++; return true })
		if used < tt.min || used > tt.max {
			t.Errorf("%s: %d callers use %d connections, want %d to %d", name, callers, used, tt.min, tt.max)
		}
	}
}

// TestVerifyAnonymousNoticesCredentials: a transport of callers that has credentials of its own is noticed.
func TestVerifyAnonymousNoticesCredentials(t *testing.T) {
	tests := map[string]func(*http.Transport){
		"certificate": func(t *http.Transport) { t.TLSClientConfig.Certificates = make([]tls.Certificate, 1) },
		"certificate callback": func(t *http.Transport) {
			t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
		},
		"header for proxies": func(t *http.Transport) { t.ProxyConnectHeader = http.Header{} },
	}
	upstream := proxytest.StartUpstream(t, true, func(http.ResponseWriter, *http.Request) {})
	for name, spoil := range tests {
		up, err := New(upstream.Config())
		expect.NoError(t, err)
		transports := up.current.Load().transports()
		if err := verifyAnonymous(transports); err != nil {
			t.Errorf("%s: %v before", name, err)
		}
		spoil(transports[len(transports)-1])
		if verifyAnonymous(transports) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// TestNetworkProxyIsForTheUpstream: whether there is a network proxy in between does not depend on
// who calls.
func TestNetworkProxyIsForTheUpstream(t *testing.T) {
	for upstream, except := range map[string]string{
		"https://10.0.0.1:6443":   "10.0.0.1:6443",
		"https://10.0.0.1":        "10.0.0.1:443",
		"https://[fd00::1]:6443":  "fd00::/8",
		"https://api.test:6443/a": "api.test:6443",
	} {
		find := (&httpproxy.Config{HTTPSProxy: "http://proxy.test:3128", NoProxy: except}).ProxyFunc()
		up, err := New(&rest.Config{
			Host:  upstream,
			Proxy: func(r *http.Request) (*url.URL, error) { return find(r.URL) },
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				return nil, errors.New("to " + address)
			},
		})
		expect.NoError(t, err)
		known := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
		up.Answered(known, false, http.MethodGet, http.StatusOK)
		for _, id := range []auth.Identity{known, proxytest.Identify(auth.NewAuthenticator(nil), "Bearer unknown")} {
			err := get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, "")
			if err == nil || !strings.Contains(err.Error(), "to "+net.JoinHostPort(up.URL().Hostname(), cmp.Or(up.URL().Port(), "443"))) {
				t.Errorf("%s with the exception %s, accepted %t: %v", upstream, except, id == known, err)
			}
		}
	}
}

// TestImpersonatedOnly: the proxy's credentials are sent with nothing that does not state a user.
func TestImpersonatedOnly(t *testing.T) {
	sent := 0
	way := impersonatedOnly{proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		sent++
		return proxytest.JSONResponse(r, http.StatusOK, ""), nil
	})}
	try := func(h http.Header) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://upstream.example/", strings.NewReader("x"))
		r.Header = h
		res, err := way.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for name, h := range map[string]http.Header{
		"nothing":         {},
		"no user":         {"Impersonate-Group": {"g"}},
		"an empty user":   {"Impersonate-User": {""}, "Impersonate-Group": {"g"}},
		"two users":       {"Impersonate-User": {"a", "b"}, "Impersonate-Group": {"g"}},
		"no group":        {"Impersonate-User": {"a"}},
		"a caller's word": {"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}, "Authorization": {"Bearer x"}},
	} {
		if err := try(h); err == nil || sent != 0 {
			t.Errorf("%s: %v, sent %d", name, err, sent)
		}
	}
	if err := try(http.Header{"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}}); err != nil || sent != 1 {
		t.Errorf("%v, sent %d", err, sent)
	}
}

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

// TestAddress: New reads the upstream's address as client-go does, and refuses one without TLS or with credentials.
func TestAddress(t *testing.T) {
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) {})
	for host, wantURL := range map[string]string{ // "": New refuses the host
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
		case (err != nil) != (wantURL == ""):
			t.Errorf("%q: got error %v, want the URL %q", host, err, wantURL)
		case err != nil:
			proxytest.AssertNotContains(t, err.Error(), "hunter2")
		default:
			expect.Same(t, wantURL, up.URL().String())
			// Behind a path there may be other API servers, which a caller's path could reach.
			if err := up.Impersonate(config); (err != nil) != (up.URL().Path != "") {
				t.Errorf("%q, with listproxy's own credentials: got error %v, want one: %t", host, err, up.URL().Path != "")
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

// TestSentAsTheCaller: SendAs sends a request with the caller's credentials only, or with listproxy's and headers that
// impersonate the caller. It does not use the connections of callers' own requests, nor, before the caller is accepted,
// that of the other reviews.
func TestSentAsTheCaller(t *testing.T) {
	var header http.Header // of the last request
	var connection string  // of the last request
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) {
		header, connection = r.Header.Clone(), r.RemoteAddr
	})
	up := impersonating(t, api)
	identities := auth.NewAuthenticator(nil)
	for name, tt := range map[string]struct {
		id              auth.Identity
		wantHeaders     [3]string // Authorization, Impersonate-User, Impersonate-Group
		wantConnections int       // of six requests
	}{
		"by a token": {
			id:              proxytest.Identify(identities, "Bearer of-a-caller"),
			wantHeaders:     [3]string{"Bearer of-a-caller"},
			wantConnections: 3,
		},
		"by a certificate": {
			id:              proxytest.Jane(auth.NewAuthenticator(nil)),
			wantHeaders:     [3]string{"Bearer of-listproxy", "jane", user.AllAuthenticated},
			wantConnections: 2,
		},
	} {
		connections := map[string]bool{}
		for range 3 { // the first answer makes the caller an accepted one
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, up.URL().String(), nil)
			expect.NoError(t, err)
			res, err := up.SendAs(t.Context(), tt.id, r)
			expect.NoError(t, err)
			expect.NoError(t, res.Body.Close())
			got := [3]string{header.Get("Authorization"), header.Get("Impersonate-User"), header.Get("Impersonate-Group")}
			expect.Same(t, tt.wantHeaders, got)
			connections[connection] = true
			expect.NoError(t, get(t, up, up.RoundTripper(tt.id, &kubehttp.Request{}), tt.id, ""))
			connections[connection] = true
		}
		if len(connections) != tt.wantConnections {
			t.Errorf("%s: got %d connections, want %d", name, len(connections), tt.wantConnections)
		}
	}
}

// TestCallersAreSpread: all requests of a caller use one connection, and different callers mostly different ones.
func TestCallersAreSpread(t *testing.T) {
	const callers = 64 // with so many, more than half of the lanes are used
	var connections sync.Map
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) { connections.Store(r.RemoteAddr, true) })
	up := impersonating(t, api)
	identities := auth.NewAuthenticator(nil)
	tokenOf := func(subject, signature string) auth.Identity {
		return proxytest.Identify(identities, proxytest.WebToken(fmt.Sprintf(`{"iss":"us","sub":%q}`, subject), signature))
	}
	for name, tt := range map[string]struct {
		caller              func(i int) auth.Identity
		wantLeast, wantMost int // connections
	}{
		"opaque tokens": {
			caller:    func(i int) auth.Identity { return proxytest.Identify(identities, fmt.Sprint("Bearer ", i)) },
			wantLeast: lanes / 2, wantMost: lanes,
		},
		"tokens of different subjects": {
			caller:    func(i int) auth.Identity { return tokenOf(fmt.Sprint(i), "x") },
			wantLeast: lanes / 2, wantMost: lanes,
		},
		"tokens of one subject": {
			caller:    func(i int) auth.Identity { return tokenOf("one", fmt.Sprint(i)) },
			wantLeast: 1, wantMost: 1,
		},
		"certificates": {
			caller: func(i int) auth.Identity {
				return identities.NewVerifiedIdentity(&user.DefaultInfo{Name: fmt.Sprint(i), Groups: []string{"g"}})
			},
			wantLeast: lanes / 2, wantMost: lanes,
		},
	} {
		connections.Clear()
		for i := range callers {
			id := tt.caller(i)
			up.RecordAnswer(id, notUpgraded, http.MethodGet, http.StatusOK)
			for range 2 {
				expect.NoError(t, get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, ""))
			}
		}
		var used int
		connections.Range(func(any, any) bool { used++; return true })
		if used < tt.wantLeast || used > tt.wantMost {
			t.Errorf("%s: %d callers use %d connections, want %d to %d", name, callers, used, tt.wantLeast, tt.wantMost)
		}
	}
}

// TestVerifyAnonymousNoticesCredentials: verifyAnonymous returns an error for a transport with any kind of credentials.
func TestVerifyAnonymousNoticesCredentials(t *testing.T) {
	tests := map[string]func(*http.Transport){
		"certificate": func(t *http.Transport) { t.TLSClientConfig.Certificates = make([]tls.Certificate, 1) },
		"certificate callback": func(t *http.Transport) {
			t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
		},
		"header for proxies": func(t *http.Transport) { t.ProxyConnectHeader = http.Header{} },
	}
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) {})
	for name, spoil := range tests {
		up, err := New(upstream.Config())
		expect.NoError(t, err)
		transports := up.current.Load().plain.all
		if err := verifyAnonymous(transports); err != nil {
			t.Errorf("%s: got error %v without credentials", name, err)
		}
		spoil(transports[len(transports)-1])
		if verifyAnonymous(transports) == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestNetworkProxyIsForTheUpstream: whether a request goes through a network proxy depends on the upstream's address, not
// on the caller.
func TestNetworkProxyIsForTheUpstream(t *testing.T) {
	for upstream, noProxy := range map[string]string{
		"https://10.0.0.1:6443":   "10.0.0.1:6443",
		"https://10.0.0.1":        "10.0.0.1:443",
		"https://[fd00::1]:6443":  "fd00::/8",
		"https://api.test:6443/a": "api.test:6443",
	} {
		find := (&httpproxy.Config{HTTPSProxy: "http://proxy.test:3128", NoProxy: noProxy}).ProxyFunc()
		up, err := New(&rest.Config{
			Host:  upstream,
			Proxy: func(r *http.Request) (*url.URL, error) { return find(r.URL) },
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				return nil, errors.New("to " + address)
			},
		})
		expect.NoError(t, err)
		known := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
		up.RecordAnswer(known, notUpgraded, http.MethodGet, http.StatusOK)
		for _, id := range []auth.Identity{known, proxytest.Identify(auth.NewAuthenticator(nil), "Bearer unknown")} {
			err := get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, "")
			if err == nil || !strings.Contains(err.Error(), "to "+net.JoinHostPort(up.URL().Hostname(), cmp.Or(up.URL().Port(), "443"))) {
				t.Errorf("%s without a proxy for %s, accepted %t: got error %v, want a direct connection", upstream, noProxy, id == known, err)
			}
		}
	}
}

// TestImpersonatedOnly: impersonatedOnly sends no request with listproxy's credentials that does not name one user and a
// group, or that has a caller's credentials.
func TestImpersonatedOnly(t *testing.T) {
	sent := 0
	transport := impersonatedOnly{proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		sent++
		return proxytest.JSONResponse(r, http.StatusOK, ""), nil
	})}
	try := func(h http.Header) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://upstream.example/", strings.NewReader("x"))
		r.Header = h
		res, err := transport.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for name, h := range map[string]http.Header{
		"nothing":          {},
		"no user":          {"Impersonate-Group": {"g"}},
		"an empty user":    {"Impersonate-User": {""}, "Impersonate-Group": {"g"}},
		"two users":        {"Impersonate-User": {"a", "b"}, "Impersonate-Group": {"g"}},
		"no group":         {"Impersonate-User": {"a"}},
		"a caller's token": {"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}, "Authorization": {"Bearer x"}},
	} {
		if err := try(h); err == nil || sent != 0 {
			t.Errorf("%s: error %v, %d requests sent; want an error and none", name, err, sent)
		}
	}
	if err := try(http.Header{"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}}); err != nil || sent != 1 {
		t.Errorf("a user and a group: error %v, %d requests sent; want one", err, sent)
	}
}

// TestNobodyIsImpersonated: without Impersonate, RoundTripper and SendAs send no request of a caller whom listproxy itself has
// verified, since kube-apiserver would not see who the caller is.
func TestNobodyIsImpersonated(t *testing.T) {
	sent := 0
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) { sent++ })
	up, err := New(api.Config())
	expect.NoError(t, err)
	id := auth.NewAuthenticator(nil).NewVerifiedIdentity(&user.DefaultInfo{Name: "jane", Groups: []string{"g"}})
	err = get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, "")
	if !errors.Is(err, errNotImpersonated) {
		t.Errorf("RoundTripper: got error %v, want %v", err, errNotImpersonated)
	}
	res, err := up.SendAs(t.Context(), id, request(t, up, id, ""))
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, errNotImpersonated) || sent != 0 {
		t.Errorf("SendAs: got error %v after %d requests, want %v and none", err, sent, errNotImpersonated)
	}
}

package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAddress: New reads the upstream's address as client-go does, and refuses one without TLS or with credentials.
func TestAddress(t *testing.T) {
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) {})
	const refused = "" // in place of a URL: New returns an error
	for host, wantURL := range map[string]string{
		"https://api:6443":                  "https://api:6443",
		"https://api:6443/":                 "https://api:6443",
		"https://rancher/k8s/clusters/c-1/": "https://rancher/k8s/clusters/c-1",
		"https://host/a%2Fb":                "https://host/a%2Fb",
		"api:6443":                          "https://api:6443", // the CA means https, as in client-go
		"":                                  "https://localhost",
		"http://api:8080":                   refused,
		"https://u:hunter2@api":             refused,
		"https://api?token=hunter2":         refused,
		"https://u:hunter2@api:bad port":    refused,
		"api/prefix":                        refused,
	} {
		config := upstream.Config()
		config.Host = host
		up, err := New(config, impersonatesNobody)
		switch {
		case (err != nil) != (wantURL == refused):
			t.Errorf("%q: got error %v, want the URL %q", host, err, wantURL)
		case err != nil:
			proxytest.AssertNotContains(t, err.Error(), "hunter2")
		default:
			expect.Same(t, wantURL, up.URL().String())
		}
	}
}

// TestSystemCAs: without a CA in the kubeconfig, the system's CAs verify the API server for callers' requests and for those
// that impersonate.
func TestSystemCAs(t *testing.T) {
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) {})
	up, err := New(&rest.Config{Host: api.Config().Host, BearerToken: "of-listproxy"}, impersonates)
	expect.NoError(t, err)
	identities := auth.NewAuthenticator(nil)
	for name, caller := range map[string]auth.Identity{
		"the caller's token":   proxytest.Identify(identities, "Bearer of-a-caller"),
		"an impersonated user": proxytest.Jane(identities),
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, up.URL().String(), http.NoBody)
		expect.NoError(t, err)
		_, err = up.SendAs(t.Context(), caller, r)
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
			t.Errorf("%s: got error %v, want an unknown authority: the CA of the test is none of the system's", name, err)
		}
	}
}

// TestNoImpersonationBehindAPath: New refuses to impersonate at an upstream behind a path, since a caller's path could reach
// other API servers there with listproxy's credentials.
func TestNoImpersonationBehindAPath(t *testing.T) {
	config := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) {}).Config()
	config.Host = "https://rancher/k8s/clusters/c-1"
	if _, err := New(config, impersonates); err == nil {
		t.Errorf("%s: got no error", config.Host)
	}
}

// newImpersonating returns Transports to api that impersonate users with the token "of-listproxy".
func newImpersonating(t *testing.T, api proxytest.UpstreamServer) *Transports {
	t.Helper()
	cfg := api.Config()
	cfg.BearerToken = "of-listproxy"
	up, err := New(cfg, impersonates)
	expect.NoError(t, err)
	return up
}

// TestSentAsTheCaller: SendAs sends a request with the caller's credentials only, or with listproxy's and headers that
// impersonate the caller. Callers' own requests never use its connections.
func TestSentAsTheCaller(t *testing.T) {
	var header http.Header // of the last request
	var connection string  // on which it came: the client's address
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) {
		header, connection = r.Header.Clone(), r.RemoteAddr
	})
	up := newImpersonating(t, api)
	identities := auth.NewAuthenticator(nil)
	for name, tt := range map[string]struct {
		id                auth.Identity
		wantAuthorization string
		wantUser          string // Impersonate-User
		wantGroup         string // Impersonate-Group
		wantConnections   int    // of three requests by SendAs, and three of the caller's own
	}{
		// There is one connection for SendAs before the token is accepted, one for SendAs afterwards, and one for the rest.
		"by a token": {
			id: proxytest.Identify(identities, "Bearer of-a-caller"), wantAuthorization: "Bearer of-a-caller", wantConnections: 3,
		},
		// A verified user is accepted from the start.
		"by a certificate": {
			id:                proxytest.Jane(identities),
			wantAuthorization: "Bearer of-listproxy", wantUser: "jane", wantGroup: user.AllAuthenticated, wantConnections: 2,
		},
	} {
		connections := map[string]bool{}
		for range 3 { // the first answer makes the token an accepted one
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, up.URL().String(), nil)
			expect.NoError(t, err)
			res, err := up.SendAs(t.Context(), tt.id, r)
			expect.NoError(t, err)
			expect.NoError(t, res.Body.Close())
			expect.Same(t, tt.wantAuthorization, header.Get("Authorization"))
			expect.Same(t, tt.wantUser, header.Get("Impersonate-User"))
			expect.Same(t, tt.wantGroup, header.Get("Impersonate-Group"))
			connections[connection] = true
			expect.NoError(t, get(t, up, up.RoundTripper(tt.id, &kubehttp.Request{}), tt.id, ""))
			connections[connection] = true
		}
		if len(connections) != tt.wantConnections {
			t.Errorf("%s: got %d connections, want %d", name, len(connections), tt.wantConnections)
		}
	}
}

// TestCallersAreSpread: all requests of a caller use one of 16 connections (lanes). Different callers mostly use different
// ones.
func TestCallersAreSpread(t *testing.T) {
	const callers = 64 // with so many, it is almost certain that at least half of the lanes are used
	var connections sync.Map
	handler := func(_ http.ResponseWriter, r *http.Request) { connections.Store(r.RemoteAddr, true) }
	api := proxytest.StartUpstream(t, proxytest.HTTP2, handler)
	up := newImpersonating(t, api)
	identities := auth.NewAuthenticator(nil)
	tokenOf := func(subject, signature string) auth.Identity {
		return proxytest.Identify(identities, proxytest.WebToken(fmt.Sprintf(`{"iss":"us","sub":%q}`, subject), signature))
	}
	type connectionRange struct{ least, most int }
	one, spread := connectionRange{least: 1, most: 1}, connectionRange{least: lanes / 2, most: lanes}
	for name, tt := range map[string]struct {
		caller func(i int) auth.Identity
		want   connectionRange
	}{
		"opaque tokens": {
			caller: func(i int) auth.Identity { return proxytest.Identify(identities, fmt.Sprint("Bearer ", i)) }, want: spread,
		},
		"tokens of different subjects": {caller: func(i int) auth.Identity { return tokenOf(fmt.Sprint(i), "x") }, want: spread},
		"tokens of one subject":        {caller: func(i int) auth.Identity { return tokenOf("one", fmt.Sprint(i)) }, want: one},
		"certificates": {
			caller: func(i int) auth.Identity {
				return identities.NewVerifiedIdentity(&user.DefaultInfo{Name: fmt.Sprint(i), Groups: []string{"g"}})
			},
			want: spread,
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
		used := 0 // the number of connections
		connections.Range(func(any, any) bool {
			used++
			return true
		})
		if used < tt.want.least || used > tt.want.most {
			t.Errorf("%s: %d callers use %d connections, want %d to %d", name, callers, used, tt.want.least, tt.want.most)
		}
	}
}

// TestVerifyAnonymousNoticesCredentials: verifyAnonymous returns an error for a transport with any kind of credentials.
func TestVerifyAnonymousNoticesCredentials(t *testing.T) {
	credentials := map[string]func(*http.Transport){ // each adds one kind
		"certificate": func(t *http.Transport) { t.TLSClientConfig.Certificates = make([]tls.Certificate, 1) },
		"certificate callback": func(t *http.Transport) {
			t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
		},
		"header for proxies": func(t *http.Transport) { t.ProxyConnectHeader = http.Header{} },
	}
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) {})
	for name, add := range credentials {
		up, err := New(upstream.Config(), impersonatesNobody)
		expect.NoError(t, err)
		transports := up.current.Load().anonymous.all
		if err := verifyAnonymous(transports); err != nil {
			t.Errorf("%s: got error %v without credentials", name, err)
		}
		add(transports[len(transports)-1])
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
		proxyFor := (&httpproxy.Config{HTTPSProxy: "http://proxy.test:3128", NoProxy: noProxy}).ProxyFunc()
		up, err := New(&rest.Config{
			Host:  upstream,
			Proxy: func(r *http.Request) (*url.URL, error) { return proxyFor(r.URL) },
			Dial:  func(_ context.Context, _, address string) (net.Conn, error) { return nil, errors.New("to " + address) },
		}, impersonatesNobody)
		expect.NoError(t, err)
		known := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
		up.RecordAnswer(known, notUpgraded, http.MethodGet, http.StatusOK)
		wantDialed := "to " + net.JoinHostPort(up.URL().Hostname(), cmp.Or(up.URL().Port(), "443"))
		for _, id := range []auth.Identity{known, proxytest.Identify(auth.NewAuthenticator(nil), "Bearer unknown")} {
			err := get(t, up, up.RoundTripper(id, &kubehttp.Request{}), id, "")
			if err == nil || !strings.Contains(err.Error(), wantDialed) {
				t.Errorf("%s without a proxy for %s, accepted %t: got error %v, want %q", upstream, noProxy, id == known, err, wantDialed)
			}
		}
	}
}

// TestImpersonationGuard: impersonationGuard sends a request with listproxy's credentials only if the request names one user
// and a group, and has no credentials of a caller.
func TestImpersonationGuard(t *testing.T) {
	sent := 0
	transport := impersonationGuard{proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		sent++
		return inmemory.Answer(r, http.StatusOK, ""), nil
	})}
	send := func(h http.Header) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://upstream.example/", strings.NewReader("x"))
		r.Header = h
		res, err := transport.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for name, h := range map[string]http.Header{
		"no user":          {"Impersonate-Group": {"g"}},
		"an empty user":    {"Impersonate-User": {""}, "Impersonate-Group": {"g"}},
		"two users":        {"Impersonate-User": {"a", "b"}, "Impersonate-Group": {"g"}},
		"no group":         {"Impersonate-User": {"a"}},
		"a caller's token": {"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}, "Authorization": {"Bearer x"}},
	} {
		if send(h) == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	expect.Same(t, 0, sent)
	expect.NoError(t, send(http.Header{"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}}))
	expect.Same(t, 1, sent)
}

// TestNobodyIsImpersonated: if New was told to impersonate nobody, RoundTripper and SendAs send no request of a caller whom
// listproxy itself has verified, since kube-apiserver would not see who the caller is.
func TestNobodyIsImpersonated(t *testing.T) {
	sent := 0
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(http.ResponseWriter, *http.Request) { sent++ })
	up, err := New(api.Config(), impersonatesNobody)
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
	if !errors.Is(err, errNotImpersonated) {
		t.Errorf("SendAs: got error %v, want %v", err, errNotImpersonated)
	}
	expect.Same(t, 0, sent)
}

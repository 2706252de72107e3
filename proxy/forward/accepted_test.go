package forward

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// asThemselves forwards each request as what it brings.
type asThemselves struct {
	*Forwarder
	identifier *authn.Authenticator
}

func newThemselves(t *testing.T, api proxytest.UpstreamServer) asThemselves {
	t.Helper()
	up, err := upstream.New(api.Config())
	expect.NoError(t, err)
	return asThemselves{New(up, proxytest.DiscardLog()), authntest.New(t)}
}

func (a asThemselves) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, _ := a.identifier.Authenticate(r)
	a.ServeAs(w, r, caller, nil)
}

// TestUnacceptedShareNoHTTP2Connection: the connections that all share, and that the API server closes
// after a 401, are for callers whom it has accepted. The others' are kept, so that none causes a
// handshake for each of its requests.
func TestUnacceptedShareNoHTTP2Connection(t *testing.T) {
	api := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("timeout") == "malformed":
			w.WriteHeader(http.StatusBadRequest) // kube-apiserver's answer, whoever asks
		case r.Method == http.MethodOptions:
		case r.Header.Get("Authorization") == "Bearer bad" || r.URL.Path == "/expired":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprint(w, r.Proto, " ", r.RemoteAddr)
	})
	handler := newThemselves(t, api)
	const own, shared = "HTTP/1.1", "HTTP/2.0"
	seen := map[string]bool{}
	for _, step := range []struct{ name, authorization, path, want string }{
		{"made up, with an answer that nobody is asked for", "Bearer bad", "/?timeout=malformed", own},
		{"made up, asking for CORS", "Bearer bad", "OPTIONS /", own},
		{"made up", "Bearer bad", "/", own},
		{"may do nothing", "Bearer c", "/forbidden", own},
		{"may do nothing, and is somebody", "Bearer c", "/forbidden", shared},
		{"the first time", "Bearer a", "/", own},
		{"accepted", "Bearer a", "/", shared},
		{"another", "Bearer b", "/", own},
		{"still accepted", "Bearer a", "/", shared},
		{"refused", "Bearer bad", "/", own},
		{"nobody", "", "/", own},
		{"no token", "Basic eA==", "/", own},
		{"no longer accepted", "Bearer a", "/expired", shared},
		{"not accepted again", "Bearer a", "/", own},
	} {
		method, path, other := strings.Cut(step.path, " ")
		if !other {
			method, path = http.MethodGet, step.path
		}
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if step.authorization != "" {
			r.Header.Set("Authorization", step.authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := w.Body.String(); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %s", step.name, got)
		}
		seen[w.Body.String()] = true
	}
	if len(seen) > 4 { // net/http may find a connection not idle yet when the next request comes
		t.Errorf("connections: %v", seen)
	}
}

// TestUnknownCallersKeepNoHTTP2Connection: as at kube-apiserver.
func TestUnknownCallersKeepNoHTTP2Connection(t *testing.T) {
	api := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer bad" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	handler := newThemselves(t, api)
	for _, http2 := range []bool{false, true} {
		for name, test := range map[string]struct {
			authorization, path string
			keeps               bool
		}{
			"known":                   {"Bearer a", "/api", true},
			"nobody":                  {"", "/api", !http2},
			"refused":                 {"Bearer bad", "/api", !http2},
			"refused by what answers": {"Bearer bad", "/api/v1/namespaces/a/services/b/proxy/", true},
		} {
			t.Run(fmt.Sprintf("%s, http2=%t", name, http2), func(t *testing.T) {
				front := startProxy(t, handler, http2)
				reused := false
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
				})
				for tries := 0; tries == 0 || test.keeps && !reused && tries < proxytest.KeepingTries; tries++ {
					for range 2 {
						r := httptest.NewRequestWithContext(ctx, http.MethodGet, front.URL+test.path, nil)
						if test.authorization != "" {
							r.Header.Set("Authorization", test.authorization)
						}
						proxytest.ReadAll(t, proxytest.Do(t, front.Client(), r).Body)
					}
				}
				expect.Same(t, test.keeps, reused)
			})
		}
	}
}

// TestReviewsHaveAConnectionOfTheirOwn: not that of callers' requests, which is kept although
// nothing comes on it for long.
func TestReviewsHaveAConnectionOfTheirOwn(t *testing.T) {
	api := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.RemoteAddr) })
	k := newForwarder(t, api.Config())
	caller := authntest.Identify(authntest.New(t), "Bearer a")
	forward := func() string {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		caller.Present(r.Header)
		k.ServeAs(w, r, caller, nil)
		return w.Body.String()
	}
	ask := func() string {
		own, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.up.URL().JoinPath("review").String(), nil)
		expect.NoError(t, err)
		resp, err := k.up.SendAs(t.Context(), caller, own)
		expect.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		return proxytest.ReadAll(t, resp.Body)
	}
	first := ask() // not accepted yet
	forwarded, review := forward(), ask()
	if forward() != forwarded || ask() != review {
		t.Error("a connection is not used again")
	}
	if review == forwarded || first == review || first == forwarded {
		t.Errorf("the first review on %s, another on %s, a request on %s", first, review, forwarded)
	}
}

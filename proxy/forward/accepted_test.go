package forward

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// asThemselves forwards each request as one of the caller whom it names.
func asThemselves(t *testing.T, api proxytest.UpstreamServer) http.HandlerFunc {
	t.Helper()
	forwarder, identifier := newForwarder(t, api.Config()), authntest.New(t)
	return func(w http.ResponseWriter, r *http.Request) {
		caller, _ := identifier.Authenticate(r)
		forwarder.ServeAs(w, r, caller, nil)
	}
}

// TestUnacceptedShareNoHTTP2Connection: the connections that all share, and that the API server closes
// after a 401, are for callers whom it has accepted. The others' are kept, so that none causes a
// handshake for each of its requests.
func TestUnacceptedShareNoHTTP2Connection(t *testing.T) {
	handler := asThemselves(t, proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
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
	}))
	const own, shared = "HTTP/1.1", "HTTP/2.0"
	seen := map[string]bool{}
	for _, step := range []struct{ name, authorization, request, want string }{
		{"made up, with an answer that nobody is asked for", "Bearer bad", "GET /?timeout=malformed", own},
		{"made up, asking for CORS", "Bearer bad", "OPTIONS /", own},
		{"made up", "Bearer bad", "GET /", own},
		{"may do nothing", "Bearer c", "GET /forbidden", own},
		{"may do nothing, and is somebody", "Bearer c", "GET /forbidden", shared},
		{"the first time", "Bearer a", "GET /", own},
		{"accepted", "Bearer a", "GET /", shared},
		{"refused", "Bearer bad", "GET /", own},
		{"nobody", "", "GET /", own},
		{"no token", "Basic eA==", "GET /", own},
		{"no longer accepted", "Bearer a", "GET /expired", shared},
		{"not accepted again", "Bearer a", "GET /", own},
	} {
		method, path, _ := strings.Cut(step.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if step.authorization != "" {
			r.Header.Set("Authorization", step.authorization)
		}
		w := httptest.NewRecorder()
		handler(w, r)
		if got := w.Body.String(); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %s", step.name, got)
		}
		seen[w.Body.String()] = true
	}
	if len(seen) > 4 { // net/http may find a connection not idle yet when the next request comes
		t.Errorf("connections: %v", seen)
	}
}

// TestUnknownCallersKeepNoHTTP2Connection: as at kube-apiserver. net/http ends an HTTP/2 connection after an
// answer that says so.
func TestUnknownCallersKeepNoHTTP2Connection(t *testing.T) {
	handler := asThemselves(t, proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer bad" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for name, tt := range map[string]struct {
		authorization, path string
		ends                bool
	}{
		"known":                   {"Bearer a", "/api", false},
		"nobody":                  {"", "/api", true},
		"refused":                 {"Bearer bad", "/api", true},
		"refused by what answers": {"Bearer bad", "/api/v1/namespaces/a/services/b/proxy/", false},
	} {
		for _, version := range []int{1, 2} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil)
			r.ProtoMajor = version
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			w := httptest.NewRecorder()
			handler(w, r)
			if ends := w.Header().Get("Connection") == "close"; ends != (tt.ends && version == 2) {
				t.Errorf("%s, HTTP/%d: the connection ends: %t", name, version, ends)
			}
		}
	}
}

// TestReviewsHaveAConnectionOfTheirOwn: not that of callers' requests, which is kept although
// nothing comes on it for long.
func TestReviewsHaveAConnectionOfTheirOwn(t *testing.T) {
	api := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.RemoteAddr) })
	k := newForwarder(t, api.Config())
	forward := func() string {
		w := httptest.NewRecorder()
		k.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		return w.Body.String()
	}
	review := func(caller authn.Identity) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.up.URL().JoinPath("review").String(), nil)
		expect.NoError(t, err)
		res, err := k.up.SendAs(t.Context(), caller, r)
		expect.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		return proxytest.ReadAll(t, res.Body)
	}
	first := review(authntest.Identify(authntest.New(t), "Bearer new")) // whom the upstream has not accepted yet
	request, another := forward(), review(k.caller)
	if forward() != request || review(k.caller) != another {
		t.Error("a connection is not used again")
	}
	if request == another || first == another || first == request {
		t.Errorf("the first review on %s, another on %s, a request on %s", first, another, request)
	}
}

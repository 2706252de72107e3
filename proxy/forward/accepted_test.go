package forward

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestUnacceptedShareNoHTTP2Connection: the connections that all share, and that the API server closes
// after a 401, are for callers whom it has accepted. The others' are kept, so that none causes a
// handshake for each of its requests. Who is not known, or refused, keeps no HTTP/2 connection here either, as at
// kube-apiserver: net/http ends one after an answer that says so.
func TestUnacceptedShareNoHTTP2Connection(t *testing.T) {
	forwarder, identifier := newForwarder(t, proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
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
	}).Config()), auth.NewAuthenticator(nil)
	const own, shared = "HTTP/1.1", "HTTP/2.0"
	seen := map[string]bool{}
	for _, step := range []struct {
		name, authorization, request string
		version                      int // of HTTP, which the caller speaks
		want                         string
		ends                         bool // the caller's connection
	}{
		{name: "made up, with an answer that nobody is asked for", authorization: "Bearer bad", request: "GET /?timeout=malformed", version: 2, want: own},
		{name: "made up, asking for CORS", authorization: "Bearer bad", request: "OPTIONS /", version: 2, want: own},
		{name: "made up", authorization: "Bearer bad", request: "GET /", version: 2, want: own, ends: true},
		{name: "made up, over HTTP/1.1", authorization: "Bearer bad", request: "GET /", version: 1, want: own},
		{name: "refused by what answers", authorization: "Bearer bad", request: "GET /api/v1/namespaces/a/services/b/proxy/", version: 2, want: own},
		{name: "may do nothing", authorization: "Bearer c", request: "GET /forbidden", version: 2, want: own},
		{name: "may do nothing, and is somebody", authorization: "Bearer c", request: "GET /forbidden", version: 2, want: shared},
		{name: "the first time", authorization: "Bearer a", request: "GET /", version: 2, want: own},
		{name: "accepted", authorization: "Bearer a", request: "GET /", version: 2, want: shared},
		{name: "refused", authorization: "Bearer bad", request: "GET /", version: 2, want: own, ends: true},
		{name: "nobody", request: "GET /", version: 2, want: own, ends: true},
		{name: "nobody, over HTTP/1.1", request: "GET /", version: 1, want: own},
		{name: "no token", authorization: "Basic eA==", request: "GET /", version: 2, want: own, ends: true},
		{name: "no longer accepted", authorization: "Bearer a", request: "GET /expired", version: 2, want: shared, ends: true},
		{name: "not accepted again", authorization: "Bearer a", request: "GET /", version: 2, want: own},
	} {
		method, path, _ := strings.Cut(step.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.ProtoMajor = step.version
		if step.authorization != "" {
			r.Header.Set("Authorization", step.authorization)
		}
		caller, _ := identifier.Authenticate(r)
		w := httptest.NewRecorder()
		forwarder.ServeAs(w, r, caller, nil)
		if got := w.Body.String(); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %s", step.name, got)
		}
		if ends := w.Header().Get("Connection") == "close"; ends != step.ends {
			t.Errorf("%s: the connection ends: %t", step.name, ends)
		}
		seen[w.Body.String()] = true
	}
	if len(seen) > 4 { // net/http may find a connection not idle yet when the next request comes
		t.Errorf("connections: %v", seen)
	}
}

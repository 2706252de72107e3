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

// TestUnacceptedShareNoHTTP2Connection: only callers whom the API server has accepted share HTTP/2 connections to it, which it
// closes after a 401. The others have HTTP/1.1 connections, which are kept, so that not every request needs a handshake. The
// answer to a caller who is unknown or refused ends the caller's HTTP/2 connection, as at kube-apiserver.
func TestUnacceptedShareNoHTTP2Connection(t *testing.T) {
	forwarder, identifier := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, r *http.Request) {
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
	connections := map[string]bool{}
	for _, step := range []struct {
		name, authorization, request string
		version                      int // of HTTP, which the caller speaks
		want                         string
		wantClose                    bool // of the caller's connection
	}{
		{name: "made up token, and an answer that says nothing of it", authorization: "Bearer bad", request: "GET /?timeout=malformed", version: 2, want: own},
		{name: "made up token, a CORS preflight", authorization: "Bearer bad", request: "OPTIONS /", version: 2, want: own},
		{name: "made up token, refused", authorization: "Bearer bad", request: "GET /", version: 2, want: own, wantClose: true},
		{name: "made up token, over HTTP/1.1", authorization: "Bearer bad", request: "GET /", version: 1, want: own},
		{name: "refused by a Service behind the API server", authorization: "Bearer bad", request: "GET /api/v1/namespaces/a/services/b/proxy/", version: 2, want: own},
		{name: "first request of a token without rights", authorization: "Bearer c", request: "GET /forbidden", version: 2, want: own},
		{name: "second request of a token without rights", authorization: "Bearer c", request: "GET /forbidden", version: 2, want: shared},
		{name: "first request of a token", authorization: "Bearer a", request: "GET /", version: 2, want: own},
		{name: "second request of a token", authorization: "Bearer a", request: "GET /", version: 2, want: shared},
		{name: "made up token, beside an accepted one", authorization: "Bearer bad", request: "GET /", version: 2, want: own, wantClose: true},
		{name: "no credentials", request: "GET /", version: 2, want: own, wantClose: true},
		{name: "no credentials, over HTTP/1.1", request: "GET /", version: 1, want: own},
		{name: "a password", authorization: "Basic eA==", request: "GET /", version: 2, want: own, wantClose: true},
		{name: "expired token, refused", authorization: "Bearer a", request: "GET /expired", version: 2, want: shared, wantClose: true},
		{name: "expired token, its next request", authorization: "Bearer a", request: "GET /", version: 2, want: own},
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
			t.Errorf("%s: sent over %s, want %s", step.name, got, step.want)
		}
		if got := w.Header().Get("Connection") == "close"; got != step.wantClose {
			t.Errorf("%s: the caller's connection is closed: %t, want %t", step.name, got, step.wantClose)
		}
		connections[w.Body.String()] = true
	}
	// Two are needed. net/http may find a connection not idle yet when the next request comes.
	if len(connections) > 4 {
		t.Errorf("%d connections were used, want at most 4: %v", len(connections), connections)
	}
}

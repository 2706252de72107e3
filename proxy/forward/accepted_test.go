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

// TestUnacceptedShareNoHTTP2Connection: the API server closes an HTTP/2 connection after a 401. So only callers whom it has
// accepted before share such connections. The others have HTTP/1.1 connections, which are kept, so that not every request needs
// a handshake. If a caller has no token, or the API server refuses it, the answer ends the caller's own HTTP/2 connection to
// listproxy, as at kube-apiserver.
func TestUnacceptedShareNoHTTP2Connection(t *testing.T) {
	const (
		good          = "Bearer a"
		withoutRights = "Bearer c"
		madeUp        = "Bearer bad"

		// The connection to the upstream.
		own    = "HTTP/1.1" // for one request at a time
		shared = "HTTP/2.0" // for many callers at the same time

		serviceProxy = "GET /api/v1/namespaces/a/services/b/proxy/"
	)
	forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("timeout") == "malformed":
			w.WriteHeader(http.StatusBadRequest) // kube-apiserver's answer, whoever asks
		case r.Method == http.MethodOptions:
		case r.Header.Get("Authorization") == madeUp || r.URL.Path == "/expired":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprint(w, r.Proto, " ", r.RemoteAddr) // names the connection
	}).Config())
	authenticator := auth.NewAuthenticator(nil)
	connections := map[string]bool{} // to the upstream; the keys are the answers' bodies
	for _, step := range []struct {
		name, authorization, request string
		overHTTP1                    bool   // the caller speaks HTTP/1.1, not HTTP/2
		wantOver                     string // the connection to the upstream: own or shared
		wantClose                    bool   // the caller's connection is closed after the answer
	}{
		{name: "made-up token, malformed request", authorization: madeUp, request: "GET /?timeout=malformed", wantOver: own},
		{name: "made-up token, CORS preflight", authorization: madeUp, request: "OPTIONS /", wantOver: own},
		{name: "made-up token, refused", authorization: madeUp, request: "GET /", wantOver: own, wantClose: true},
		{name: "made-up token, over HTTP/1.1", authorization: madeUp, request: "GET /", overHTTP1: true, wantOver: own},
		{name: "made-up token, refused by a Service", authorization: madeUp, request: serviceProxy, wantOver: own},

		{name: "token without rights", authorization: withoutRights, request: "GET /forbidden", wantOver: own},
		{name: "token without rights, again", authorization: withoutRights, request: "GET /forbidden", wantOver: shared},

		{name: "good token", authorization: good, request: "GET /", wantOver: own},
		{name: "good token, again", authorization: good, request: "GET /", wantOver: shared},
		{name: "made-up token, beside a good one", authorization: madeUp, request: "GET /", wantOver: own, wantClose: true},

		{name: "no credentials", request: "GET /", wantOver: own, wantClose: true},
		{name: "no credentials, over HTTP/1.1", request: "GET /", overHTTP1: true, wantOver: own},
		{name: "a password", authorization: "Basic eA==", request: "GET /", wantOver: own, wantClose: true},

		{name: "expired token", authorization: good, request: "GET /expired", wantOver: shared, wantClose: true},
		{name: "expired token, again", authorization: good, request: "GET /", wantOver: own},
	} {
		method, path, _ := strings.Cut(step.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.ProtoMajor = 2
		if step.overHTTP1 {
			r.ProtoMajor = 1
		}
		if step.authorization != "" {
			r.Header.Set("Authorization", step.authorization)
		}
		caller, _ := authenticator.Authenticate(r)
		w := httptest.NewRecorder()
		forwarder.ServeAs(w, r, caller, nil)
		if got := w.Body.String(); !strings.HasPrefix(got, step.wantOver) {
			t.Errorf("%s: sent over %s, want %s", step.name, got, step.wantOver)
		}
		if got := w.Header().Get("Connection") == "close"; got != step.wantClose {
			t.Errorf("%s: the caller's connection is closed: %t, want %t", step.name, got, step.wantClose)
		}
		connections[w.Body.String()] = true
	}
	// One connection of each kind is needed. There may be more, since a connection may not be idle yet when the next request
	// comes.
	const maxConnections = 4
	if len(connections) > maxConnections {
		t.Errorf("%d connections were used, want at most %d: %v", len(connections), maxConnections, connections)
	}
}

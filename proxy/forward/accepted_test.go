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
// closes after a 401. The others have HTTP/1.1 connections, which are kept, so that not every request needs a handshake. If a
// caller has no token, or the API server refuses it, the answer ends the caller's HTTP/2 connection, as at kube-apiserver.
func TestUnacceptedShareNoHTTP2Connection(t *testing.T) {
	forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, r *http.Request) {
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
	}).Config())
	identifier := auth.NewAuthenticator(nil)
	const own, shared = "HTTP/1.1", "HTTP/2.0" // connections to the upstream
	const bad, good = "Bearer bad", "Bearer a"
	const withoutRights = "Bearer c"
	const http1, http2 = 1, 2
	connections := map[string]bool{}
	for _, step := range []struct {
		name, authorization, request string
		callerSpeaks                 int // a version of HTTP
		wantOver                     string
		wantClose                    bool // of the caller's connection
	}{
		{
			name: "made-up token, malformed request", authorization: bad, request: "GET /?timeout=malformed", callerSpeaks: http2, wantOver: own,
		},
		{name: "made-up token, CORS preflight", authorization: bad, request: "OPTIONS /", callerSpeaks: http2, wantOver: own},
		{name: "made-up token, refused", authorization: bad, request: "GET /", callerSpeaks: http2, wantOver: own, wantClose: true},
		{name: "made-up token, over HTTP/1.1", authorization: bad, request: "GET /", callerSpeaks: http1, wantOver: own},
		{
			name: "refused by a Service behind the API server", authorization: bad, request: "GET /api/v1/namespaces/a/services/b/proxy/",
			callerSpeaks: http2, wantOver: own,
		},
		{name: "token without rights", authorization: withoutRights, request: "GET /forbidden", callerSpeaks: http2, wantOver: own},
		{
			name: "token without rights, again", authorization: withoutRights, request: "GET /forbidden", callerSpeaks: http2, wantOver: shared,
		},
		{name: "good token", authorization: good, request: "GET /", callerSpeaks: http2, wantOver: own},
		{name: "good token, again", authorization: good, request: "GET /", callerSpeaks: http2, wantOver: shared},
		{
			name: "made-up token, beside a good one", authorization: bad, request: "GET /", callerSpeaks: http2, wantOver: own, wantClose: true,
		},
		{name: "no credentials", request: "GET /", callerSpeaks: http2, wantOver: own, wantClose: true},
		{name: "no credentials, over HTTP/1.1", request: "GET /", callerSpeaks: http1, wantOver: own},
		{name: "a password", authorization: "Basic eA==", request: "GET /", callerSpeaks: http2, wantOver: own, wantClose: true},
		{name: "expired token", authorization: good, request: "GET /expired", callerSpeaks: http2, wantOver: shared, wantClose: true},
		{name: "expired token, again", authorization: good, request: "GET /", callerSpeaks: http2, wantOver: own},
	} {
		method, path, _ := strings.Cut(step.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.ProtoMajor = step.callerSpeaks
		if step.authorization != "" {
			r.Header.Set("Authorization", step.authorization)
		}
		caller, _ := identifier.Authenticate(r)
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
	// Two connections are needed. There may be more, since a connection may not be idle yet when the next request comes.
	if len(connections) > 4 {
		t.Errorf("%d connections were used, want at most 4: %v", len(connections), connections)
	}
}

package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
)

// asThemselves forwards each request as what it brings.
type asThemselves struct {
	*Forwarder
	identifier *Identifier
}

func (a asThemselves) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, _ := a.identifier.Identify(r)
	a.ServeAs(w, r, caller)
}

// TestStrangersHaveConnectionsOfTheirOwn: HTTP/2, where all share a connection that the API server
// closes after a 401, is for callers whom it has accepted.
func TestStrangersHaveConnectionsOfTheirOwn(t *testing.T) {
	upstream := startUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("timeout") == "malformed":
			w.WriteHeader(http.StatusBadRequest) // kube-apiserver's answer, whoever asks
		case r.Method == http.MethodOptions:
		case r.Header.Get("Authorization") == "Bearer bad" || r.URL.Path == "/expired":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprint(w, r.ProtoMajor)
	})
	up, err := NewUpstream(upstream.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.requests.CloseIdleConnections)
	t.Cleanup(up.strangers.CloseIdleConnections)
	handler := asThemselves{NewForwarder(up, slog.New(slog.DiscardHandler)), newIdentifier(t)}
	for _, step := range []struct{ name, authorization, path, want string }{
		{"made up", "Bearer bad", "/?timeout=malformed", "1"},
		{"made up, with an answer that nobody is asked for", "Bearer bad", "/", "1"},
		{"made up, asking for CORS", "Bearer bad", "OPTIONS /", "1"},
		{"made up, with its answer", "Bearer bad", "/", "1"},
		{"may do nothing", "Bearer c", "/forbidden", "1"},
		{"may do nothing, and is somebody", "Bearer c", "/forbidden", "2"},
		{"the first time", "Bearer a", "/", "1"},
		{"accepted", "Bearer a", "/", "2"},
		{"another", "Bearer b", "/", "1"},
		{"still accepted", "Bearer a", "/", "2"},
		{"refused", "Bearer bad", "/", "1"},
		{"refused again", "Bearer bad", "/", "1"},
		{"nobody", "", "/", "1"},
		{"nobody again", "", "/", "1"},
		{"no token", "Basic eA==", "/", "1"},
		{"no token again", "Basic eA==", "/", "1"},
		{"no longer accepted", "Bearer a", "/expired", "2"},
		{"a stranger again", "Bearer a", "/", "1"},
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
		if got := w.Body.String(); got != step.want {
			t.Errorf("%s: HTTP/%s, not HTTP/%s", step.name, got, step.want)
		}
	}
}

// TestUnknownCallersKeepNoHTTP2Connection: as at kube-apiserver.
func TestUnknownCallersKeepNoHTTP2Connection(t *testing.T) {
	upstream := startUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer bad" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	up, err := NewUpstream(upstream.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.requests.CloseIdleConnections)
	t.Cleanup(up.strangers.CloseIdleConnections)
	handler := asThemselves{NewForwarder(up, slog.New(slog.DiscardHandler)), newIdentifier(t)}
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
				for range 2 {
					ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
						GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
					})
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+test.path, nil)
					if err != nil {
						t.Fatal(err)
					}
					if test.authorization != "" {
						r.Header.Set("Authorization", test.authorization)
					}
					res, err := front.Client().Do(r)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				if reused != test.keeps {
					t.Errorf("the connection was kept: %t", reused)
				}
			})
		}
	}
}

// TestRecently: what was added last is there, and there is an end to it.
func TestRecently(t *testing.T) {
	var s recently[int]
	for i := range 10 * recentlyKept {
		s.add(i)
		if !s.has(i) || i > 0 && !s.has(i-1) {
			t.Fatalf("%d was forgotten at once", i)
		}
	}
	for i := 9 * recentlyKept; i < 10*recentlyKept; i++ {
		if !s.has(i) {
			t.Fatalf("%d is among the last and was forgotten", i)
		}
	}
	if n := len(s.young) + len(s.previous); n > 2*recentlyKept {
		t.Errorf("it holds %d", n)
	}
	s.remove(10*recentlyKept - 1)
	if s.has(10*recentlyKept - 1) {
		t.Error("removed, and still there")
	}
}

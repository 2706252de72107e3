package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
)

// TestAccessLog: a request has one line in the access log, with the decision and the answer. The line has no credential, no
// query, and no path that a caller has made up.
func TestAccessLog(t *testing.T) {
	const secret = "alice-holds-this"
	pods := &policy.Request{Version: "v1", Resource: "pods"}
	o, _ := observetest.New(nil)
	for name, tt := range map[string]struct {
		method string // empty: GET
		target string
		handle func(observetest.Seen)
		want   map[string]any
	}{
		"answered from memory": {
			target: "/api/v1/namespaces/team-a/pods?labelSelector=" + secret,
			handle: func(s observetest.Seen) {
				s.SetDecision(pods, policy.Any, reason.None)
				s.SetMemoryAnswer(observe.MemoryAnswer{Revision: 7})
				_, _ = s.Write(make([]byte, 100))
			},
			want: map[string]any{
				"method": "GET", "target": "list pods v1", "namespace": "team-a", "code": 200.0, "bytes": 100.0,
				"cacheStatus": "listproxy; hit; detail=any", "revision": 7.0,
			},
		},
		"refused": {
			method: "BREW", target: "/" + secret,
			handle: func(s observetest.Seen) {
				s.SetRefused("time-out")
				s.WriteHeader(http.StatusTooManyRequests)
			},
			want: map[string]any{"method": "_OTHER", "target": "other", "code": 429.0, "bytes": 0.0, "refused": "time-out"},
		},
		"broken off": {
			target: "/healthz?" + secret,
			handle: func(s observetest.Seen) {
				s.SetDecision(&policy.Request{}, "", reason.NotList)
				panic(http.ErrAbortHandler)
			},
			want: map[string]any{
				"method": "GET", "target": "/healthz", "code": 0.0, "bytes": 0.0,
				"cacheStatus": "listproxy; fwd=bypass; detail=not-list", "broken": true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := telemetry.NewLogger(&out, telemetry.FormatJSON, telemetry.LevelAccess)
			r := httptest.NewRequest(tt.method, tt.target, nil)
			localAddress := &net.TCPAddr{IP: net.IPv6loopback, Port: 8443}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, localAddress))
			r.Header.Set("Authorization", "Bearer "+secret)
			r.Header.Set("User-Agent", "kubectl/v1 "+secret)
			observetest.Logged(o, log, r, tt.handle)

			if strings.Contains(out.String(), secret) {
				t.Errorf("the line has the secret: %s", &out)
			}
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v: %q", err, &out)
			}
			// The attributes that are the same in every case.
			for key, want := range map[string]any{"level": "ACCESS", "msg": "request", "userAgent": "kubectl/v1", "port": "8443"} {
				expect.Same(t, want, got[key])
				delete(got, key)
			}
			for _, varying := range []string{"time", "duration"} {
				if got[varying] == nil {
					t.Errorf("the line has no %s: %s", varying, &out)
				}
				delete(got, varying)
			}
			expect.Same(t, tt.want, got)
		})
	}
}

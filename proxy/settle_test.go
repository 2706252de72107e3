package proxy

import (
	"context"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// busyVersions is an API server, or several behind one address, that say in turn which versions they are. Now and then no answer
// comes, and the next one so late that it is almost given up.
type busyVersions struct {
	versions []string
	lateAt   string        // a path
	patience time.Duration // for an answer
	asked    int
	missed   bool
}

// RoundTrip implements [http.RoundTripper].
func (b *busyVersions) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked++
	late := time.Duration(0)
	switch {
	case r.URL.Path != b.lateAt:
	case b.missed:
		late, b.missed = b.patience-time.Millisecond, false
	case rand.IntN(3) == 0:
		late, b.missed = b.patience, true
	}
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(late):
	}
	body := io.NopCloser(strings.NewReader(versionOf(b.versions[b.asked%len(b.versions)])))
	return &http.Response{StatusCode: http.StatusOK, Body: body, Header: http.Header{}, Request: r}, nil
}

// CloseIdleConnections is for whoever asks once.
func (*busyVersions) CloseIdleConnections() {}

// TestLeastSettle: while two versions serve, all is told anew before the least time of forwarding is over, also where answers are late or
// do not come; and that is not much longer than it takes.
func TestLeastSettle(t *testing.T) {
	const one, two = "v1.35.4", "v1.36.3"
	for name, tt := range map[string]struct {
		each bool
		run  func(context.Context, *testing.T, *Servers)
	}{
		"behind one address": {false, func(ctx context.Context, _ *testing.T, s *Servers) {
			s.client = &http.Client{Transport: &busyVersions{versions: []string{one, two}, lateAt: "/version", patience: versionTimeout}, Timeout: versionTimeout}
			s.pollVersion(ctx)
		}},
		"each asked": {true, func(ctx context.Context, t *testing.T, s *Servers) {
			s.endpoints = newEndpoints(t, "a:1", "b:1")
			for i, version := range []string{one, two} {
				s.endpoints.all[i].client = &http.Client{Transport: &busyVersions{versions: []string{version}, lateAt: "/readyz", patience: endpointTimeout}}
			}
			s.endpoints.Run(ctx, s.hearAll)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, told, longest := time.Now(), time.Time{}, time.Duration(0)
				s := &Servers{
					address: &url.URL{Scheme: "https", Host: "api.test", Path: "/version"}, log: proxytest.DiscardLog(), known: func() {},
					changed: func() {
						now := time.Now()
						if now.Sub(begun) > 10*time.Minute { // both have been heard
							longest = max(longest, now.Sub(told))
						}
						told = now
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Hour)
				defer cancel()
				tt.run(ctx, t, s)
				least := LeastSettle(tt.each)
				if slack := least - longest; slack < time.Second || slack > 3*time.Second {
					t.Errorf("all was told anew after %v once; the least time of forwarding is %v", longest, least)
				}
			})
		})
	}
}

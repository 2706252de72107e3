package discovery

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
)

// TestLeastSettle: while two versions serve behind one address, all is told anew before the least
// time of forwarding is over, also where answers are late or do not come; and that is not much
// longer than it takes.
func TestLeastSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, told, longest := time.Now(), time.Time{}, time.Duration(0)
		busy := &proxytest.BusyVersions{Versions: []string{"v1.35.4", "v1.36.3"}, LateAt: "/version", Patience: versionTimeout}
		s := &Servers{
			client: &http.Client{Transport: busy, Timeout: versionTimeout},
			base:   &url.URL{Scheme: "https", Host: "api.test"}, log: proxytest.DiscardLog(), known: func() {},
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
		s.pollVersion(ctx)
		if slack := LeastSettle(SlowestLook) - longest; slack < time.Second || slack > 3*time.Second {
			t.Errorf("all was told anew after %v once; the least time of forwarding is %v", longest, LeastSettle(SlowestLook))
		}
	})
}

// TestSlowestNews: another version is heard of within SlowestNews, also if an answer from before is
// on its way, and answers are late; and that is not much longer than it takes.
func TestSlowestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, longest, changed := 0, time.Duration(0), time.Time{}
		answer := func(r *http.Request) (*http.Response, error) {
			said := [...]string{"v1.35.4", "v1.36.3"}[looks/100%2]
			if looks++; looks%100 == 0 { // what came before is forgotten by then
				changed = time.Now()
			}
			time.Sleep(versionTimeout - time.Millisecond)
			return proxytest.JSONResponse(r, http.StatusOK, proxytest.VersionOf(said)), nil
		}
		s := &Servers{
			client: &http.Client{Transport: proxytest.Transport(answer), Timeout: versionTimeout},
			base:   &url.URL{Scheme: "https", Host: "api.test"}, log: proxytest.DiscardLog(), known: func() {},
			changed: func() {
				if !changed.IsZero() {
					longest = max(longest, time.Since(changed))
				}
				changed = time.Time{}
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Hour)
		defer cancel()
		s.pollVersion(ctx)
		if slack := SlowestNews - longest; slack < 0 || slack > time.Second {
			t.Errorf("another version was heard of after %v once, SlowestNews is %v", longest, SlowestNews)
		}
	})
}

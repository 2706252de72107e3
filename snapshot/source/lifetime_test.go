package source

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestLifetime: the timeout of a watch begins at some time between the request and its answer.
//
//   - LatestEnd returns the time at which the end was noticed, but at most the end of a timeout that begins with the answer.
//   - reachedTimeout is true from maxEarlyEnd before the end of a timeout that begins with the request.
func TestLifetime(t *testing.T) {
	sent := time.Now()
	life := lifetime{sentAt: sent, answeredAt: sent.Add(20 * time.Second), timeout: 60 * time.Second}
	const earliest = 60*time.Second - maxEarlyEnd
	const tooEarly = earliest - time.Nanosecond
	for name, tt := range map[string]struct {
		noticedAfter       time.Duration // the time from the request to the end as it was noticed
		wantEndAfter       time.Duration // the time from the request to LatestEnd
		wantReachedTimeout bool
	}{
		"before the timeout":             {noticedAfter: tooEarly, wantEndAfter: tooEarly},
		"maxEarlyEnd before the timeout": {noticedAfter: earliest, wantEndAfter: earliest, wantReachedTimeout: true},
		"long after the timeout":         {noticedAfter: time.Hour, wantEndAfter: 80 * time.Second, wantReachedTimeout: true},
	} {
		t.Run(name, func(t *testing.T) {
			noticed := sent.Add(tt.noticedAfter)
			if got := life.LatestEnd(noticed).Sub(sent); got != tt.wantEndAfter {
				t.Errorf("LatestEnd: got %v after the request, want %v", got, tt.wantEndAfter)
			}
			if got := life.reachedTimeout(noticed); got != tt.wantReachedTimeout {
				t.Errorf("reachedTimeout: got %t, want %t", got, tt.wantReachedTimeout)
			}
		})
	}
}

// TestLifetimeOfASuspendedMachine: a machine was suspended beyond the timeout of a watch, so only the wall clock has passed the
// timeout. LatestEnd still returns the end of the timeout.
func TestLifetimeOfASuspendedMachine(t *testing.T) {
	now := time.Now()
	const suspended = time.Hour
	life := lifetime{answeredAt: proxytest.EarlierByTheWallClock(now, suspended), timeout: time.Minute}
	if got, want := clock.Age(life.LatestEnd(now), now), suspended-life.timeout; got != want {
		t.Errorf("the watch ended %v ago, want %v", got, want)
	}
}

// TestLateWatch: Watch gives up if the upstream does not begin to answer in time. The error says so. It wraps
// [context.Canceled] and so does not count as an outage, since only this watch is known to be slow.
func TestLateWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context()) // as net/http does over HTTP/1.1
		})
		s := &Source{Base: &url.URL{Scheme: "https", Host: "upstream"}, Client: &http.Client{Transport: transport}}
		const allNamespaces, timeout = "", time.Hour
		_, err := s.Watch(t.Context(), allNamespaces, url.Values{}, timeout)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not begin to answer") {
			t.Errorf("got error %v, want one that says that the answer did not begin, and wraps %v", err, context.Canceled)
		}
	})
}

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

// TestLifetime: LatestEnd returns the time at which the end of a watch was noticed, but none after its timeout, counted from
// the answer. reachedTimeout returns true from maxEarlyEnd before the timeout is over, counted from the request.
func TestLifetime(t *testing.T) {
	sent := time.Now()
	life := lifetime{sentAt: sent, answeredAt: sent.Add(20 * time.Second), timeout: time.Minute}
	for name, tt := range map[string]struct {
		noticedAfter       time.Duration // since the request was sent
		wantEndAfter       time.Duration
		wantReachedTimeout bool
	}{
		"before the timeout": {
			noticedAfter: life.timeout - maxEarlyEnd - 1, wantEndAfter: life.timeout - maxEarlyEnd - 1,
		},
		"maxEarlyEnd before the timeout": {
			noticedAfter: life.timeout - maxEarlyEnd, wantEndAfter: life.timeout - maxEarlyEnd, wantReachedTimeout: true,
		},
		"long after the timeout": {
			noticedAfter: time.Hour, wantEndAfter: 20*time.Second + life.timeout, wantReachedTimeout: true,
		},
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

// TestLifetimeOfASuspendedMachine: LatestEnd is the end of the timeout even if only the wall clock has passed it.
func TestLifetimeOfASuspendedMachine(t *testing.T) {
	now := time.Now()
	const suspended = time.Hour // the monotonic clock stood still
	life := lifetime{answeredAt: proxytest.EarlierByTheWallClock(now, suspended), timeout: time.Minute}
	if got, want := clock.Age(life.LatestEnd(now), now), suspended-life.timeout; got != want {
		t.Errorf("the watch ended %v ago, want %v", got, want)
	}
}

// TestLateWatch: a watch whose answer does not begin in time is given up. Its error says so, and wraps [context.Canceled]: only
// this watch is known to be slow, so there is no outage.
func TestLateWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context()) // as net/http does over HTTP/1.1
		})
		s := &Source{Base: &url.URL{Scheme: "https", Host: "upstream"}, Client: &http.Client{Transport: transport}}
		_, err := s.Watch(t.Context(), "", url.Values{}, time.Hour)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not begin to answer") {
			t.Errorf("got error %v, want one that says that the answer did not begin, and wraps %v", err, context.Canceled)
		}
	})
}

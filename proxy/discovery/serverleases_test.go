package discovery

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/proxytest"
)

func TestServersTellOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		s, heard := runServers(t, f, proxytest.DiscardLog())
		if !s.Ready() {
			t.Error("not ready after the first list")
		}
		heard.expect(t, "the first list", 0)
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_1", 2))
		time.Sleep(time.Hour)
		heard.expect(t, "a renewal", 0)
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 3))
		heard.expect(t, "a new holder", 1)
		f.Event(leasesPath, "ADDED", serverLease("three", "three_1", 4))
		heard.expect(t, "one more", 1)
		f.Event(leasesPath, "DELETED", serverLease("two", "two_1", 5))
		heard.expect(t, "one less", 1)
	})
}

func TestServersHoldAListAgainstWhatWasThere(t *testing.T) {
	for name, tt := range map[string]struct {
		after   []string
		changes int32
		starts  bool
	}{
		"nothing changed":  {[]string{serverLease("one", "one_1", 7), serverLease("two", "two_1", 8)}, 0, false},
		"one went":         {[]string{serverLease("one", "one_1", 7)}, 1, false},
		"one was replaced": {[]string{serverLease("one", "one_1", 7), serverLease("three", "three_1", 7)}, 2, true},
		"one restarted":    {[]string{serverLease("one", "one_1", 7), serverLease("two", "two_2", 7)}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServers()
				_, heard := runServers(t, f, proxytest.DiscardLog())
				asked := f.Asked("get /version")
				f.Answer(http.StatusInternalServerError, "watch "+leasesPath)
				f.Mu.Lock()
				f.Collections[leasesPath].Objects = tt.after
				f.Mu.Unlock()
				f.Cut(leasesPath)
				time.Sleep(time.Millisecond)
				heard.expect(t, "the stream was lost", 0)
				f.Answer(0, "watch "+leasesPath)
				time.Sleep(versionEvery - time.Second) // not long enough for a look at /version in turn
				heard.expect(t, "the stream is back", tt.changes)
				// At once where one has started.
				if got := f.Asked("get /version") - asked; (got > 0) != tt.starts {
					t.Errorf("/version was asked for %d times", got)
				}
			})
		})
	}
}

package cluster

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// serverLease is the Lease of an API server, renewed at a revision.
func serverLease(name, holder string, revision int) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",`+
		`"metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d"},"spec":{"holderIdentity":%q}}`, name, revision, holder)
}

// newFakeServers is an upstream of two API servers.
func newFakeServers() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	f.Collections[leasesPath] = &proxytest.FakeCollection{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1", Objects: []string{
		serverLease("one", "one_1", 1), serverLease("two", "two_1", 1),
	}}
	f.Document("/version", proxytest.VersionOf("v1.36.3"))
	return f
}

// serversHeard is what Servers told.
type serversHeard struct{ changed atomic.Int32 }

// runServers runs servers of f in the bubble.
func runServers(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) (*servers, *serversHeard) {
	t.Helper()
	var heard serversHeard
	s, err := newServers(f.Config(), log, func(string) { heard.changed.Add(1) })
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	return s, &heard
}

// expect holds what was told since the last call against what should have been.
func (h *serversHeard) expect(t *testing.T, when string, changes int32) {
	t.Helper()
	if got := h.changed.Swap(0); got != changes {
		t.Errorf("%s: %d changes, want %d", when, got, changes)
	}
}

// TestServersReadyWaits: nothing is known while the Leases may yet be read.
func TestServersReadyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusInternalServerError, "list "+leasesPath, "watch "+leasesPath)
		s, heard := runServers(t, f, proxytest.DiscardLog())
		time.Sleep(time.Minute)
		if s.leases.ready() {
			t.Error("ready without having read the Leases")
		}
		f.Answer(0, "list "+leasesPath, "watch "+leasesPath)
		time.Sleep(time.Minute)
		if !s.leases.ready() {
			t.Error("not ready")
		}
		heard.expect(t, "first list", 0)
	})
}

// TestServersComeBackSoon: however long the upstream was away, the stream of its Leases is open
// again soon after it is back.
func TestServersComeBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		_, heard := runServers(t, f, proxytest.DiscardLog())
		f.Refuse(true)
		f.Cut(leasesPath)
		time.Sleep(time.Hour)
		heard.expect(t, "away", 0)
		if got := f.Asked("list " + leasesPath); got > 3600 {
			t.Errorf("the stream was tried %d times in an hour", got)
		}
		f.Refuse(false)
		time.Sleep(6 * time.Second)
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 2))
		heard.expect(t, "back", 1)
	})
}

func TestServersTellOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		s, heard := runServers(t, f, proxytest.DiscardLog())
		if !s.leases.ready() {
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
	}{
		"nothing changed":  {[]string{serverLease("one", "one_1", 7), serverLease("two", "two_1", 8)}, 0},
		"one went":         {[]string{serverLease("one", "one_1", 7)}, 1},
		"one was replaced": {[]string{serverLease("one", "one_1", 7), serverLease("three", "three_1", 7)}, 2},
		"one restarted":    {[]string{serverLease("one", "one_1", 7), serverLease("two", "two_2", 7)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServers()
				_, heard := runServers(t, f, proxytest.DiscardLog())
				f.Answer(http.StatusInternalServerError, "watch "+leasesPath)
				f.Mu.Lock()
				f.Collections[leasesPath].Objects = tt.after
				f.Mu.Unlock()
				f.Cut(leasesPath)
				time.Sleep(time.Millisecond)
				heard.expect(t, "the stream was lost", 0)
				f.Answer(0, "watch "+leasesPath)
				time.Sleep(6 * time.Second)
				heard.expect(t, "the stream is back", tt.changes)
			})
		})
	}
}

// TestServersTellOfVersions: also where Leases may not be read.
func TestServersTellOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusForbidden, "list "+leasesPath, "watch "+leasesPath)
		var logged logbuffer.Buffer
		s, heard := runServers(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
		if !s.leases.ready() {
			t.Error("not ready")
		}
		time.Sleep(time.Hour)
		heard.expect(t, "no change", 0)
		if got := strings.Count(logged.String(), "\n"); got != 1 || !strings.Contains(logged.String(), "list and watch on leases.coordination.k8s.io in kube-system") {
			t.Errorf("want one line that says what to grant, got:\n%s", logged.String())
		}
		if got := f.Asked("get /version"); got < 300 || got > 400 {
			t.Errorf("/version was asked for %d times in an hour", got)
		}

		f.Document("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(2 * versionEvery)
		heard.expect(t, "an upgrade", 1)
		f.Answer(http.StatusServiceUnavailable, "get /version")
		time.Sleep(time.Hour)
		f.Answer(0, "get /version")
		f.Document("/version", `<html>`)
		time.Sleep(time.Hour)
		f.Document("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(time.Hour)
		heard.expect(t, "no answer, no version, and the same again", 0)
	})
}

func TestVersionsThatAreHeard(t *testing.T) {
	old, fresh := version.Info{GitVersion: "v1.36.3"}, version.Info{GitVersion: "v1.37.0"}
	var v versions
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		name  string
		after time.Duration
		said  version.Info
		want  bool
	}{
		{"the first", 0, old, false},
		{"the same", versionEvery, old, false},
		{"another", versionEvery, fresh, true},
		{"in turn", versionEvery, old, false},
		{"and again", versionEvery, fresh, false},
		{"the same, for long", time.Hour, fresh, false},
		{"back again", versionEvery, old, true},
		{"in turn", versionEvery, fresh, false},
		{"in turn, for so long", versionRest - versionEvery, fresh, true},
		{"for good", time.Hour, fresh, false},
	} {
		now = now.Add(step.after)
		if got := v.hear(step.said, now); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

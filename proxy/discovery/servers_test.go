package discovery

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"k8s.io/apimachinery/pkg/version"
)

const serverLeases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// serverLease is the Lease of an API server, renewed at a revision.
func serverLease(name, holder string, revision int) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",`+
		`"metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d"},"spec":{"holderIdentity":%q}}`, name, revision, holder)
}

// newFakeServers is an upstream of two API servers.
func newFakeServers() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	f.Collections[serverLeases] = &proxytest.FakeCollection{Kind: "LeaseList", Objects: []string{
		serverLease("one", "one_1", 1), serverLease("two", "two_1", 1),
	}}
	f.Document("/version", proxytest.VersionOf("v1.36.3"))
	return f
}

// serversHeard is what Servers told.
type serversHeard struct{ known, changed atomic.Int32 }

// runServers runs Servers of f in the bubble.
func runServers(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) (*Servers, *serversHeard) {
	t.Helper()
	var heard serversHeard
	s, err := NewServers(f.Config(), func() { heard.known.Add(1) }, func() { heard.changed.Add(1) }, log)
	if err != nil {
		t.Fatal(err)
	}
	proxytest.RunInBubble(t, s.Run)
	return s, &heard
}

// expect holds what was told since the last call against what should have been.
func (h *serversHeard) expect(t *testing.T, when string, changes int32) {
	t.Helper()
	if got := h.changed.Swap(0); got != changes {
		t.Errorf("%s: %d changes, want %d", when, got, changes)
	}
	if got := h.known.Load(); got != 1 {
		t.Errorf("%s: known was told %d times", when, got)
	}
}

func TestServersTellOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		s, heard := runServers(t, f, proxytest.DiscardLog())
		if !s.Ready() {
			t.Error("not ready after the first list")
		}
		heard.expect(t, "the first list", 0)
		f.Event(serverLeases, "MODIFIED", serverLease("one", "one_1", 2))
		time.Sleep(time.Hour)
		heard.expect(t, "a renewal", 0)
		f.Event(serverLeases, "MODIFIED", serverLease("one", "one_2", 3))
		heard.expect(t, "a new holder", 1)
		f.Event(serverLeases, "ADDED", serverLease("three", "three_1", 4))
		heard.expect(t, "one more", 1)
		f.Event(serverLeases, "DELETED", serverLease("two", "two_1", 5))
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
		"one was replaced": {[]string{serverLease("one", "one_1", 7), serverLease("three", "three_1", 7)}, 1},
		"one restarted":    {[]string{serverLease("one", "one_1", 7), serverLease("two", "two_2", 7)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServers()
				_, heard := runServers(t, f, proxytest.DiscardLog())
				asked := f.Asked("get /version")
				f.Answer(http.StatusInternalServerError, "watch "+serverLeases)
				f.Mu.Lock()
				f.Collections[serverLeases].Objects = tt.after
				f.Mu.Unlock()
				f.Cut(serverLeases)
				time.Sleep(time.Millisecond)
				heard.expect(t, "the stream was lost", 0)
				f.Answer(0, "watch "+serverLeases)
				time.Sleep(versionEvery - time.Second) // not long enough for a look at /version in turn
				heard.expect(t, "the stream is back", tt.changes)
				// Once because of the new stream; again and again where one has started.
				if got := f.Asked("get /version") - asked; got != 1 && tt.changes == 0 || got < 3 && tt.changes > 0 {
					t.Errorf("/version was asked for %d times", got)
				}
			})
		})
	}
}

// TestServersTellOfVersions: also where Leases may not be read.
func TestServersTellOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusForbidden, "list "+serverLeases, "watch "+serverLeases)
		var logged proxytest.LogBuffer
		s, heard := runServers(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
		if !s.Ready() {
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
		time.Sleep(2*versionEvery + versionParting)
		if heard.changed.Swap(0) == 0 {
			t.Error("an upgrade was not told")
		}
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

// TestServersReadyWaits: nothing is known while the Leases may yet be read, or nobody was asked.
func TestServersReadyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusInternalServerError, "list "+serverLeases, "watch "+serverLeases)
		s, heard := runServers(t, f, proxytest.DiscardLog())
		time.Sleep(time.Minute)
		if s.Ready() || heard.known.Load() != 0 {
			t.Error("ready without having read the Leases")
		}
		f.Answer(0, "list "+serverLeases, "watch "+serverLeases)
		time.Sleep(time.Minute)
		if !s.Ready() {
			t.Error("not ready")
		}
		heard.expect(t, "first list", 0)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Takes = time.Second // /version
		f.Answer(http.StatusForbidden, "list "+serverLeases, "watch "+serverLeases)
		s, heard := runServers(t, f, proxytest.DiscardLog())
		if s.Ready() || heard.known.Load() != 0 {
			t.Error("ready before /version was asked for")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !s.Ready() {
			t.Error("not ready")
		}
		heard.expect(t, "first answer", 0)
	})
}

// TestServersComeBackSoon: however long the upstream was away, the stream of its Leases is open again
// soon after it is back.
func TestServersComeBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		_, heard := runServers(t, f, proxytest.DiscardLog())
		f.Refuse(true)
		f.Cut(serverLeases)
		time.Sleep(time.Hour)
		heard.expect(t, "away", 0)
		if got := f.Asked("watch " + serverLeases); got > 3600 {
			t.Errorf("the stream was tried %d times in an hour", got)
		}
		f.Refuse(false)
		time.Sleep(soonest * 3 / 2)
		f.Event(serverLeases, "MODIFIED", serverLease("one", "one_2", 2))
		heard.expect(t, "back", 1)
	})
}

func TestVersionsThatAreHeard(t *testing.T) {
	old, fresh := version.Info{GitVersion: "v1.36.3"}, version.Info{GitVersion: "v1.36.3", Platform: "linux/arm64"}
	type outcome struct{ changed, unsettled bool }
	var v versions
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		name  string
		after time.Duration
		said  version.Info // none: there was no answer
		want  outcome
	}{
		{"the first", 0, old, outcome{}},
		{"the same", versionEvery, old, outcome{}},
		{"another", versionEvery, fresh, outcome{changed: true, unsettled: true}},
		{"the other again", versionEvery, fresh, outcome{unsettled: true}},
		{"nobody answers", versionEvery, version.Info{}, outcome{unsettled: true}},
		{"the first again", versionEvery, old, outcome{changed: true, unsettled: true}},
		{"and again", versionMemory, old, outcome{unsettled: true}},
		{"for so long that the other is gone", versionEvery, old, outcome{}},
		{"an upgrade later", time.Hour, fresh, outcome{changed: true}},
		{"that is taken back later", time.Hour, old, outcome{changed: true}},
		{"and soon again", versionParting, fresh, outcome{changed: true, unsettled: true}},
		{"for good", versionMemory + time.Second, fresh, outcome{}},
		{"nobody answers then", time.Second, version.Info{}, outcome{}},
	} {
		now = now.Add(step.after)
		var got outcome
		if step.said != (version.Info{}) {
			got.changed = v.hear(step.said, now)
		}
		got.unsettled = v.unsettled(now)
		if got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
}

// TestServersOnceUpgraded: when a version was heard for the first time another may answer yet, until the
// former was not heard for a while: each look tells so, the faster for it, and one in vain, too.
func TestServersOnceUpgraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		_, heard := runServers(t, f, proxytest.DiscardLog())
		time.Sleep(time.Minute)
		heard.expect(t, "one version", 0)
		f.Document("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(2 * versionEvery)
		for what, code := range map[string]int{"a look that heard the same": 0, "a look in vain": http.StatusServiceUnavailable} {
			f.Answer(code, "get /version")
			heard.changed.Store(0)
			time.Sleep(versionAgain * 3 / 2)
			if heard.changed.Load() == 0 {
				t.Errorf("%s told nothing", what)
			}
		}
		time.Sleep(versionParting)
		heard.changed.Store(0)
		time.Sleep(time.Hour)
		heard.expect(t, "one version only", 0)
	})
}

// TestServersOnceMixed: while two versions answer in turn, each look tells so, also one that
// hears the same as the one before.
func TestServersOnceMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		_, heard := runServers(t, f, proxytest.DiscardLog())
		for _, v := range []string{"v1.37.0", "v1.36.3"} {
			f.Document("/version", proxytest.VersionOf(v))
			time.Sleep(2 * versionEvery)
		}
		if got := heard.changed.Swap(0); got < 2 {
			t.Fatalf("%d changes, want at least the two", got)
		}
		time.Sleep(versionEvery * 12 / 10)
		if got := heard.changed.Swap(0); got == 0 {
			t.Error("a look that heard the same told nothing")
		}
		time.Sleep(versionMemory)
		heard.changed.Store(0)
		time.Sleep(time.Hour)
		heard.expect(t, "one version only", 0)
	})
}

func TestServerStoreRefusesOtherTypes(t *testing.T) {
	store := serverStore{&Servers{}}
	for name, err := range map[string]error{
		"Add": store.Add("x"), "Update": store.Update("x"), "Delete": store.Delete("x"), "Replace": store.Replace([]any{"x"}, ""),
	} {
		if err == nil {
			t.Errorf("%s took an object of another type", name)
		}
	}
}

func TestFleet(t *testing.T) {
	old, fresh := version.Info{GitVersion: "v1.35.4"}, version.Info{GitVersion: "v1.36.3"}
	var f fleet
	for i, tt := range []struct {
		said           []version.Info
		changed, mixed bool
	}{
		{nil, false, false},
		{[]version.Info{old}, false, false},
		{[]version.Info{old}, false, false},
		{[]version.Info{old, fresh}, true, true},
		{[]version.Info{fresh, old}, false, true},
		{nil, false, true},
		{[]version.Info{fresh}, true, false},
		{nil, false, false},
	} {
		if changed, mixed := f.hear(tt.said); changed != tt.changed || mixed != tt.mixed {
			t.Errorf("step %d: changed %v, mixed %v", i, changed, mixed)
		}
	}
}

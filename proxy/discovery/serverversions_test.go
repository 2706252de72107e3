package discovery

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestServersTellOfVersions: also where Leases may not be read.
func TestServersTellOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusForbidden, "list "+leasesPath, "watch "+leasesPath)
		var logged logbuffer.Buffer
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

// TestServersOnceUpgraded: when a version was heard for the first time another may answer yet,
// until the former was not heard for a while: each look tells so, the faster for it, and one in
// vain, too.
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

func proberOf(t *testing.T, transport http.RoundTripper) *upstream.Prober {
	t.Helper()
	prober, err := upstream.NewProber(&rest.Config{Host: "https://api.test", Transport: transport}, versionTimeout)
	expect.NoError(t, err)
	return prober
}

// TestLeastSettle: while two versions serve behind one address, all is told anew before the least
// time of forwarding is over, also where answers are late or do not come; and that is not much
// longer than it takes.
func TestLeastSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, told, longest := time.Now(), time.Time{}, time.Duration(0)
		busy := &proxytest.BusyVersions{Versions: []string{"v1.35.4", "v1.36.3"}, LateAt: "/version", Patience: versionTimeout}
		s := &Servers{
			prober: proberOf(t, busy), log: proxytest.DiscardLog(),
			changed: func(string) {
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
			prober: proberOf(t, proxytest.Transport(answer)), log: proxytest.DiscardLog(),
			changed: func(string) {
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

package discovery

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"

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
		time.Sleep(2 * versionEvery)
		heard.expect(t, "an upgrade", 1)
		time.Sleep(versionMemory + 2*versionEvery)
		heard.expect(t, "the former version is gone", 1)
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
	v, now := versions{}, time.Unix(1e9, 0)
	for _, step := range []struct {
		name  string
		after time.Duration
		said  version.Info
		want  string
	}{
		{"the first", 0, old, ""},
		{"the same", versionEvery, old, ""},
		{"another", versionEvery, fresh, "version v1.37.0 answers"},
		{"in turn", versionEvery, old, ""},
		{"and again", versionEvery, fresh, ""},
		{"one of them only", versionMemory - versionEvery, fresh, ""},
		{"for so long that the other is gone", versionEvery + 1, fresh, "version v1.36.3 answers no longer"},
		{"for good", versionEvery, fresh, ""},
		{"nobody has answered for long", time.Hour, fresh, ""},
	} {
		now = now.Add(step.after)
		if got := v.hear(step.said, now); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	if v.hear(old, now.Add(time.Hour)) == "" {
		t.Error("another one after nobody has answered for long: no news")
	}
}

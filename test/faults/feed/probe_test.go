package feed

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// uncachedFor is for how long requests are counted: shorter than the first pause between two tries.
const uncachedFor = 40 * time.Second

// Rule 10: where kube-apiserver has no watch cache for a resource, short watches end without a
// bookmark. After a few of these lists of the newest state are forwarded at once, and nothing is
// asked in vain.
func TestWithoutWatchCache(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, ownCluster(t, "--watch-cache-sizes=configmaps#0"), rigOptions{args: []string{"--consistent-lists=always", "--watches"}})
	ns := r.namespace(t, "uncached")
	r.create(t, configMaps, ns, "one")
	r.create(t, endpoints, ns, "elsewhere")
	r.await(hitAny, configMaps.Path(ns), anyVersion())
	streaming := configMaps.Path(ns) + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	asks := func() (took time.Duration, err error) {
		begun := time.Now()
		a, err := r.try(configMaps.Path(ns), query())
		took = time.Since(begun)
		if err == nil && a.Source() != fwdNotProven {
			err = fmt.Errorf("it came from %q", a.Source())
		}
		return took, err
	}
	begun := time.Now()
	r.until("the status page to say that nothing is proven", func() error {
		r.touch(t, endpoints, ns, "elsewhere", fmt.Sprint(time.Now().UnixNano()))
		if _, err := asks(); err != nil {
			return err
		}
		status, err := r.proxy.Status(t.Context())
		if err == nil && !slices.ContainsFunc(status.Collections, func(c admin.Collection) bool {
			return c.Resource == configMaps.Plural && c.State == "not-proven"
		}) {
			err = fmt.Errorf("it says %+v", status.Collections)
		}
		return err
	})
	t.Logf("the status page says so after %v", time.Since(begun).Round(time.Second))
	probes, watches := r.count(configMaps, isProbe), r.count(configMaps, short)
	slowest, lists := time.Duration(0), 0
	for begun := time.Now(); time.Since(begun) < uncachedFor; lists++ {
		r.touch(t, endpoints, ns, "elsewhere", fmt.Sprint(time.Now().UnixNano()))
		took, err := asks()
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, took)
		asked := time.Now()
		resp, err := r.admin.Open(t.Context(), http.MethodGet, streaming, nil)
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(asked))
		if source := resp.Header.Get("Cache-Status"); source != fwdNotProven {
			t.Errorf("a streaming list came from %q", source)
		}
		_ = resp.Body.Close()
		if !poll.Pause(t.Context(), time.Second) {
			return
		}
	}
	probes, watches = r.count(configMaps, isProbe)-probes, r.count(configMaps, short)-watches
	t.Logf("%d lists and as many streaming lists in %v: the slowest began after %v; %d questions and %d short watches of the feed",
		lists, uncachedFor, slowest.Round(time.Millisecond), probes, watches)
	if probes > 0 || watches > 0 {
		t.Error("the feed asks in vain")
	}
}

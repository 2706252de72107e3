package feed

import (
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
)

// Rule 2: the first state comes as a streaming list where the upstream has it.
func TestStreamingLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	r.unhurried(t, configMaps, r.namespace(t, "load-streaming"), func(r *rig, ns string) error {
		if err := loadAndWalk(t, r, configMaps, ns); err != nil {
			return err
		}
		if n := r.count(configMaps, func(q url.Values) bool { return q.Get("sendInitialEvents") == "true" }); n != 1 {
			return fmt.Errorf("%d streaming lists, not one", n)
		}
		return r.loaded(configMaps, 1)
	})
}

// Where the upstream refuses streaming lists, the first state comes page by page; a 410 in the
// middle begins again.
func TestPaginatedLoad(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, k := range []kind{configMaps, widgets} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var pages, expired atomic.Int32
			r := newRig(t, shared, rigOptions{fault: func(w http.ResponseWriter, req *http.Request) bool {
				q := req.URL.Query()
				switch {
				case q.Has("sendInitialEvents"):
					return status(w, http.StatusUnprocessableEntity)
				case !of(req, k) || !q.Has("limit") || q.Has("resourceVersion") || learns(q):
					return false
				case q.Has("continue") && pages.Add(1) == 2:
					expired.Add(1)
					return status(w, http.StatusGone)
				}
				q.Set("limit", "3") // the feed's own pages would hold all there is
				req.URL.RawQuery = q.Encode()
				return false
			}})
			r.unhurried(t, k, r.namespace(t, "load-"+k.plural), func(r *rig, ns string) error { return loadAndWalk(t, r, k, ns) })
			if pages.Load() < 4 || expired.Load() != 1 {
				t.Errorf("the load took %d pages and met %d times a 410: this test has shown nothing", pages.Load(), expired.Load())
			}
		})
	}
}

// loadAndWalk makes listproxy load a resource that holds some objects, and asks for it in all
// ways. It returns an error if something of it is not known.
func loadAndWalk(t *testing.T, r *rig, k kind, ns string) error {
	t.Helper()
	for i := range 10 {
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
	}
	r.remove(t, k, ns, "object-5")
	revision := r.touch(t, k, ns, "object-3", "now")
	r.await(hitAny, k.list(""), anyVersion())
	a := r.await(hitNotOlderThan, k.list(ns), notOlderThan(revision))
	for _, path := range []string{k.list(""), k.list(ns)} {
		if err := walk(r, path, a.Meta().ResourceVersion); err != nil {
			return err
		}
	}
	// And the watch goes on from there.
	revision = r.create(t, k, ns, "later")
	r.await(hitNotOlderThan, k.list(ns), notOlderThan(revision))
	return nil
}

// walk reads all pages of a list at a revision. It returns an error if they do not all come from memory.
func walk(r *rig, path, revision string) error {
	r.t.Helper()
	a, err := r.comes(hitExact, path, firstPage(revision))
	for err == nil && a.Meta().Continue != "" {
		a, err = r.comes(hitContinue, path, query("limit=3", "continue="+a.Meta().Continue))
	}
	return err
}

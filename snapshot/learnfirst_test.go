package snapshot

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestFirstObjectOfAnEmptyCollection: how objects are written is learned from the first one, while
// clients follow the collection. If that is not possible, the state is loaded again.
func TestFirstObjectOfAnEmptyCollection(t *testing.T) {
	first := strings.Replace(itemA, `"5"`, `"12"`, 1)
	event := inEvent("ADDED", first)
	listing := func(items ...string) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			return proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(12, "", items...))
		}
	}
	for name, tt := range map[string]struct {
		// exactly answers the list at the event's revision.
		exactly func(r *http.Request) *http.Response
		lost    reason.Reason
		busy    bool // at first
	}{
		"it is learned":                   {exactly: listing(first)},
		"the API server is busy at first": {exactly: listing(first), busy: true},
		"the revision is compacted": {lost: reason.FirstObject, exactly: func(r *http.Request) *http.Response {
			return proxytest.JSONResponse(r, http.StatusGone, aStatus)
		}},
		"it is not in the list": {lost: reason.FirstObject, exactly: listing()},
		"a list has another header": {lost: reason.FirstObject, exactly: func(r *http.Request) *http.Response {
			answer := listing(first)(r)
			answer.Header.Set("Warning", "299")
			return answer
		}},
		"it has other bytes": {lost: reason.Form, exactly: listing(itemA)},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := watched(t, &upstream{revision: 9, meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
				switch q := r.URL.Query(); {
				case kind == "load" && !q.Has("fieldSelector"):
					return 0, (&upstream{}).lasting(r, bookmark(9, endsInitial), event, 3500*time.Millisecond)
				case q.Get("resourceVersion") == "12" && q.Has("fieldSelector"):
					if tt.busy {
						tt.busy = false
						return 0, busy(r, http.StatusTooManyRequests, "1")
					}
					return 0, tt.exactly(r)
				case q.Has("watch"):
					return 0, nil
				}
				return 0, proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(9, ""))
			}}, 3*time.Second)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if tt.lost != "" {
				if s := c.life.counts.stats(); s.Losses[tt.lost] != 1 {
					t.Errorf("got %+v", s)
				}
				return
			}
			var b watch.Batch
			end := watcher.Take(t.Context(), &b)
			var got strings.Builder
			for part := range b.Parts {
				got.Write(part)
			}
			expect.Same(t, event, got.String())
			expect.Same(t, "", string(end))
			for rev, n := range map[uint64]int{9: 0, 12: 1} { // the past is known, too
				state, why := c.Exact(t.Context(), rev)
				if page := state.Page(index.Query{}, nil); why != reason.None || len(page.Objects) != n {
					t.Errorf("at %d: %q, %d objects", rev, why, len(page.Objects))
				}
			}
			if s := c.life.counts.stats(); s.Loads != 1 || len(s.Losses) > 0 {
				t.Errorf("got %+v", s)
			}
		})
	}
}

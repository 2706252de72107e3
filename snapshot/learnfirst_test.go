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

// TestFirstObjectOfAnEmptyCollection: the form of items is learned from the first object of a collection, and clients'
// watches go on. If that is not possible, the state is loaded anew.
func TestFirstObjectOfAnEmptyCollection(t *testing.T) {
	first := strings.Replace(itemA, `"5"`, `"12"`, 1)
	event := itemEvent("ADDED", first)
	listing := func(items ...string) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			return proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(12, "", items...))
		}
	}
	for name, tt := range map[string]struct {
		exactList   func(r *http.Request) *http.Response // answers the list at the event's revision
		busyAtFirst bool                                 // the first such list is answered 429
		wantLost    reason.Reason                        // the cause of the only loss; None if the form is learned
	}{
		"the list has the object":         {exactList: listing(first)},
		"the API server is busy at first": {exactList: listing(first), busyAtFirst: true},
		"the revision is compacted": {wantLost: reason.FirstObject, exactList: func(r *http.Request) *http.Response {
			return proxytest.JSONResponse(r, http.StatusGone, statusBody)
		}},
		"the list is empty": {wantLost: reason.FirstObject, exactList: listing()},
		"the list has another header": {wantLost: reason.FirstObject, exactList: func(r *http.Request) *http.Response {
			answer := listing(first)(r)
			answer.Header.Set("Warning", "299")
			return answer
		}},
		"the list has another revision of the object": {wantLost: reason.Form, exactList: listing(itemA)},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9}
			u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
				switch q := r.URL.Query(); {
				case kind == "load" && !q.Has("fieldSelector"):
					return 0, (&upstream{}).lastingResponse(r, bookmark(9, endsInitial), event, 3500*time.Millisecond)
				case q.Get("resourceVersion") == "12" && q.Has("fieldSelector"):
					if tt.busyAtFirst {
						tt.busyAtFirst = false
						return 0, busyResponse(r, http.StatusTooManyRequests, "1")
					}
					return 0, tt.exactList(r)
				case q.Has("watch"):
					return 0, nil
				}
				return 0, proxytest.JSONResponse(r, http.StatusOK, u.list(9, ""))
			}
			c := runWatchedFeed(t, u, 3*time.Second)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if tt.wantLost != "" {
				if losses := c.counts.lossesByCause(); losses[tt.wantLost] != 1 {
					t.Errorf("losses %v, want one because of %q", losses, tt.wantLost)
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
					t.Errorf("at %d: %q, %d objects, want %d", rev, why, len(page.Objects), n)
				}
			}
			if losses := c.counts.lossesByCause(); len(losses) > 0 {
				t.Errorf("losses %v, want none", losses)
			}
		})
	}
}

package snapshot

import (
	"net/http"
	"slices"
	"strconv"
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

// TestFirstObjectOfAnEmptyCollection: when an empty collection gets its first object, a feed learns how the API server writes
// items from a list at the object's revision, and clients' watches go on. If that list cannot be used, the state is lost.
func TestFirstObjectOfAnEmptyCollection(t *testing.T) {
	const emptyAt, firstAt = 9, 12 // the revisions of the empty collection and of the first object
	first := strings.Replace(itemA, `"5"`, `"12"`, 1)
	event := itemEvent("ADDED", first)
	list := func(items ...string) answerer { return respond(http.StatusOK, configMapList(firstAt, "", items...)) }
	listWithWarning := func(r *http.Request) *http.Response {
		answer := list(first)(r)
		answer.Header.Set("Warning", "299")
		return answer
	}
	for name, tt := range map[string]struct {
		exactList   answerer      // answers the list at the object's revision
		busyAtFirst bool          // the first such list is answered 429
		wantLoss    reason.Reason // the cause of the only loss; None: the form is learned
	}{
		"the list has the object":                     {exactList: list(first)},
		"the API server is busy at first":             {exactList: list(first), busyAtFirst: true},
		"the revision is compacted":                   {exactList: refuse(http.StatusGone), wantLoss: reason.FirstObject},
		"the list is empty":                           {exactList: list(), wantLoss: reason.FirstObject},
		"the list has another header":                 {exactList: listWithWarning, wantLoss: reason.FirstObject},
		"the list has another revision of the object": {exactList: list(itemA), wantLoss: reason.Form},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			isBusy := tt.busyAtFirst
			u := &upstream{revision: emptyAt}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				q := r.URL.Query()
				isExactList := q.Get("resourceVersion") == strconv.Itoa(firstAt) && q.Has("fieldSelector")
				switch {
				case kind == kindStreamingList: // the feed's stream; the object comes half a second after the client's watch
					return 0, lastingResponse(r, bookmark(emptyAt, endsInitial), event, 3500*time.Millisecond)
				case isExactList && isBusy:
					isBusy = false
					return 0, refuseFor(1, http.StatusTooManyRequests)(r)
				case isExactList:
					return 0, tt.exactList(r)
				case q.Has("watch"):
					return 0, nil
				}
				return 0, respond(http.StatusOK, configMapList(emptyAt, ""))(r)
			}
			c := runWatchedFeed(t, u, 3*time.Second)
			watcher := follow(t, c)
			defer watcher.Close(watch.EndGone)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			expectLoss(t, c, tt.wantLoss)
			if tt.wantLoss != reason.None {
				return
			}
			var b watch.Batch
			end := watcher.Take(t.Context(), &b)
			expect.Same(t, event, string(slices.Concat(slices.Collect(b.Parts)...)))
			expect.Same(t, watch.Ending(""), end)
			for revision, wantObjects := range map[uint64]int{emptyAt: 0, firstAt: 1} {
				state, unavailable := c.Exact(t.Context(), revision)
				if unavailable != reason.None {
					t.Fatalf("the state at %d: got reason %q, want the state", revision, unavailable)
				}
				if got := len(state.Page(index.Query{}, nil).Objects); got != wantObjects {
					t.Errorf("the state at %d: got %d objects, want %d", revision, got, wantObjects)
				}
			}
		})
	}
}

package snapshot

import (
	"fmt"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestFirstObjectOfAnEmptyCollection: when an empty collection gets its first object, a feed learns how the API server writes
// items from a list at the object's revision, and clients' watches go on. If that list cannot be used, the state is lost.
func TestFirstObjectOfAnEmptyCollection(t *testing.T) {
	const firstAt = emptyAt + 1 // the revision of the first object
	withWarning := func(answer answerer) answerer {
		return func(r *http.Request) *http.Response {
			answered := answer(r)
			answered.Header.Set("Warning", "299")
			return answered
		}
	}
	for name, tt := range map[string]struct {
		// exactList answers the list at the object's revision, instead of the API server, which would answer with right; nil:
		// the API server answers.
		exactList   func(right string) answerer
		busyAtFirst bool          // the first such list is answered 429
		wantLoss    reason.Reason // the cause of the only loss; None: the form is learned
	}{
		"the list has the object":         {},
		"the API server is busy at first": {busyAtFirst: true},
		"the revision is compacted": {
			exactList: func(string) answerer { return refuse(http.StatusGone) }, wantLoss: reason.FirstObject,
		},
		"the list is empty": {
			exactList: func(string) answerer { return respond(http.StatusOK, emptyList(firstAt)) }, wantLoss: reason.FirstObject,
		},
		"the list has another header": {
			exactList: func(right string) answerer { return withWarning(respond(http.StatusOK, right)) }, wantLoss: reason.FirstObject,
		},
		"the list has another revision of the object": {
			exactList: func(right string) answerer {
				return respond(http.StatusOK, strings.Replace(right, fmt.Sprint(firstAt), fmt.Sprint(emptyAt), 1))
			},
			wantLoss: reason.Form,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			isBusy := tt.busyAtFirst
			p := newPlane(t)
			p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
				q := r.URL.Query()
				isExactList := q.Get("resourceVersion") == strconv.Itoa(firstAt) && q.Has("fieldSelector") && !q.Has("watch")
				switch {
				case isExactList && isBusy:
					isBusy = false
					return 0, refuseFor(http.StatusTooManyRequests, time.Second)(r)
				case isExactList && tt.exactList != nil:
					return 0, tt.exactList(p.list(firstAt, inmemory.List{}))(r)
				}
				return 0, nil
			})
			c := runWatchedFeed(t, p, 3*time.Second)
			watcher := beginWatch(t, c)
			defer watcher.Close(watch.EndGone)
			p.write("a")
			time.Sleep(3 * time.Second)
			synctest.Wait()
			expectLossCause(t, c, tt.wantLoss)
			if tt.wantLoss != reason.None {
				return
			}
			var b watch.Batch
			end := watcher.Take(t.Context(), &b)
			expect.Same(t, event("ADDED", "a", firstAt), string(slices.Concat(slices.Collect(b.Parts)...)))
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

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

// TestFirstObjectOfAnEmptyCollection: from an empty list, a feed cannot learn how the API server writes the items of lists.
// When the collection gets its first object, the feed learns this from an exact list (a list at the object's revision), and
// clients' watches go on. If the exact list cannot be used, the state is lost.
func TestFirstObjectOfAnEmptyCollection(t *testing.T) {
	const firstAt = emptyAt + 1 // the revision of the first object
	withWarning := func(answer answerer) answerer {
		return func(r *http.Request) *http.Response {
			answered := answer(r)
			answered.Header.Set("Warning", "299")
			return answered
		}
	}
	otherRevision := func(list string) string { return strings.Replace(list, fmt.Sprint(firstAt), fmt.Sprint(emptyAt), 1) }
	for name, tt := range map[string]struct {
		// answerExactList answers the exact list instead of the API server. rightList is the API server's answer. If
		// answerExactList is nil, the API server answers.
		answerExactList func(rightList string) answerer
		busyAtFirst     bool          // the first exact list is answered 429
		wantLoss        reason.Reason // the cause of the only loss of the state; None: no state is lost
	}{
		"the list has the object":         {},
		"the API server is busy at first": {busyAtFirst: true},
		"the revision is compacted": {
			answerExactList: func(string) answerer { return refuse(http.StatusGone) },
			wantLoss:        reason.FirstObject,
		},
		"the list is empty": {
			answerExactList: func(string) answerer { return respond(http.StatusOK, emptyList(firstAt)) },
			wantLoss:        reason.FirstObject,
		},
		"the list has another header": {
			answerExactList: func(rightList string) answerer { return withWarning(respond(http.StatusOK, rightList)) },
			wantLoss:        reason.FirstObject,
		},
		"the list has another revision of the object": {
			answerExactList: func(rightList string) answerer { return respond(http.StatusOK, otherRevision(rightList)) },
			wantLoss:        reason.Form,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			mustRefuse := tt.busyAtFirst
			p := newPlane(t)
			p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
				q := r.URL.Query()
				isExactList := q.Get("resourceVersion") == strconv.Itoa(firstAt) && q.Has("fieldSelector") && !q.Has("watch")
				switch {
				case isExactList && mustRefuse:
					mustRefuse = false
					return 0, refuseFor(http.StatusTooManyRequests, time.Second)(r)
				case isExactList && tt.answerExactList != nil:
					rightList := p.list(firstAt, inmemory.List{})
					return 0, tt.answerExactList(rightList)(r)
				}
				return 0, nil
			})

			// A client watches the empty collection. The first object is created.
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

			// If the form was learned, the client gets the object, and the states before and after are known.
			var b watch.Batch
			end := watcher.Take(t.Context(), &b)
			text := slices.Concat(slices.Collect(b.Parts)...)
			expect.Same(t, event("ADDED", "a", firstAt), string(text))
			expect.Same(t, watch.Ending(""), end)
			for revision, wantObjects := range map[uint64]int{emptyAt: 0, firstAt: 1} {
				state, unavailable := c.Exact(t.Context(), revision)
				if unavailable != reason.None {
					t.Fatalf("the state at %d: got reason %q, want the state", revision, unavailable)
				}
				if got := len(state.Page(index.Query{}, noBuffer).Objects); got != wantObjects {
					t.Errorf("the state at %d: got %d objects, want %d", revision, got, wantObjects)
				}
			}
		})
	}
}

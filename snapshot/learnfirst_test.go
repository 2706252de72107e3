package snapshot

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// TestFirstObjectOfAnEmptyCollection: how objects are written is learned from the first one, while
// clients follow the collection. If that is not possible, the state is loaded again.
func TestFirstObjectOfAnEmptyCollection(t *testing.T) {
	first := strings.Replace(itemA, `"5"`, `"12"`, 1)
	for name, tt := range map[string]struct {
		exactly func(times int, r *http.Request) *http.Response // nil: the list at the event's revision
		lost    reason.Reason
	}{
		"it is learned": {},
		"the API server is busy at first": {exactly: func(times int, r *http.Request) *http.Response {
			if times == 1 {
				return tooBusy(r, http.StatusTooManyRequests)
			}
			return nil
		}},
		"the revision is compacted": {func(_ int, r *http.Request) *http.Response { return tooBusy(r, http.StatusGone) }, reason.FirstObject},
		"it is not in the list": {func(_ int, r *http.Request) *http.Response {
			return (&upstream{exactly: func(string) []string { return nil }}).compare(r)
		}, reason.FirstObject},
		"a list has another header": {func(_ int, r *http.Request) *http.Response {
			answer := (&upstream{exactly: func(string) []string { return []string{first} }}).compare(r)
			answer.Header.Set("Warning", "299")
			return answer
		}, reason.FirstObject},
		"it has other bytes": {func(_ int, r *http.Request) *http.Response {
			return (&upstream{exactly: func(string) []string { return []string{itemA} }}).compare(r)
		}, reason.Form},
	} {
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9, watch: func(uint64) []string { return nil }}
			u.exactly = func(string) []string { return []string{first} }
			told, tell := io.Pipe()
			defer func() { _ = tell.Close() }()
			asked := 0
			c := fedWith(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				q, body := r.URL.Query(), io.NopCloser(strings.NewReader(u.list("", "")))
				switch {
				case q.Has("sendInitialEvents") && !q.Has("fieldSelector"):
					end := bookmark(9, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
					body = io.NopCloser(io.MultiReader(strings.NewReader(end), told))
					context.AfterFunc(r.Context(), func() { _ = told.Close() })
				case q.Get("resourceVersion") == "12" && q.Has("fieldSelector"):
					if asked++; tt.exactly == nil {
						return 0, nil
					}
					return 0, tt.exactly(asked, r)
				case q.Has("watch"):
					return 0, nil
				}
				return 0, &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media.JSONType}}, Body: body, Request: r}
			}}, 3*time.Second, Settings{Watches: true}, 90*time.Second)
			snap, why := c.Latest(t.Context(), 0)
			if why != reason.None {
				t.Fatal(why)
			}
			cursor := snap.Watch(index.Query{}, watch.Options{After: 9, Timeout: time.Hour, Defined: func() bool { return true }})
			event := inEvent("ADDED", first)
			if _, err := io.WriteString(tell, event); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if tt.lost != "" {
				if s := c.life.counts.stats(); s.Losses[tt.lost] != 1 {
					t.Errorf("got %+v", s)
				}
				cursor.Close(watch.EndGone)
				return
			}
			var b watch.Batch
			end := cursor.Take(t.Context(), &b)
			var got strings.Builder
			for part := range b.Parts {
				got.Write(part)
			}
			if diff := cmp.Diff(event, got.String()); diff != "" || end != "" {
				t.Errorf("it ended: %q (-want +got):\n%s", end, diff)
			}
			cursor.Close(watch.EndGone)
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

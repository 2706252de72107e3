package snapshot

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// follower follows a collection, and says how that ended.
type follower struct {
	begun time.Time
	ended chan watch.Ending
	lived time.Duration
}

// follow begins to follow the newest state of a collection.
func follow(t *testing.T, c *Collection) *follower {
	t.Helper()
	snap, why := c.Latest(t.Context(), 0)
	if why != reason.None {
		t.Fatal(why)
	}
	cursor := snap.Watch(index.Query{}, watch.Options{After: snap.Revision, Timeout: 24 * time.Hour})
	if cursor == nil {
		t.Fatal("it cannot be followed")
	}
	f := &follower{begun: time.Now(), ended: make(chan watch.Ending, 1)}
	go func() {
		for b := (watch.Batch{}); ; {
			switch end := cursor.Take(t.Context(), &b); {
			case end != "":
				cursor.Close(end)
				f.lived = time.Since(f.begun)
				f.ended <- end
				return
			case b.Events == 0:
				cursor.Wait(t.Context())
			}
		}
	}()
	return f
}

// TestWatchesOutliveQuestions: while the feed's stream tells something, or a question says that there
// is nothing to tell, watches go on. If neither is so for the staleness bound they end, whatever the
// reason.
func TestWatchesOutliveQuestions(t *testing.T) {
	const bound = 90 * time.Second // of fed
	refused := func(r *http.Request) (time.Duration, *http.Response) {
		return 0, tooBusy(r, http.StatusTooManyRequests)
	}
	unanswered := func(*http.Request) (time.Duration, *http.Response) { return time.Hour, nil }
	answered := func(*http.Request) (time.Duration, *http.Response) { return 0, nil }
	for name, tt := range map[string]struct {
		questions func(*http.Request) (time.Duration, *http.Response)
		tells     string
		ends      bool
		stale     bool
	}{
		"all is well":                                 {questions: answered, tells: bookmark(9, "")},
		"nothing is written anywhere":                 {questions: answered},
		"questions are refused, bookmarks come":       {questions: refused, tells: bookmark(9, ""), stale: true},
		"questions are not answered, bookmarks come":  {questions: unanswered, tells: bookmark(9, ""), stale: true},
		"questions are refused, the stream is silent": {questions: refused, ends: true, stale: true},
		"the API server stands still":                 {questions: unanswered, ends: true, stale: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, tells: tt.tells, pauses: time.Minute, watch: func(uint64) []string { return nil }}
				loaded := time.Now().Add(time.Second)
				c := fedWith(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					if kindOf(r) == "probe" && time.Now().After(loaded) {
						return tt.questions(r)
					}
					return 0, nil
				}}, 2*time.Second, nil, Settings{Watches: true})
				f := follow(t, c)
				time.Sleep(4*time.Minute + 30*time.Second) // before the stream's own timeout
				synctest.Wait()
				if why := c.NoFollow(9, true); (why == reason.Stale) != tt.stale {
					t.Errorf("another that begins: %q", why)
				}
				select {
				case end := <-f.ended:
					if !tt.ends || end != watch.EndLost || f.lived < bound-10*time.Second || f.lived > bound+10*time.Second {
						t.Errorf("it ended after %v: %s", f.lived, end)
					}
				default:
					if tt.ends {
						t.Error("it has not ended")
					}
				}
				u.mu.Lock()
				defer u.mu.Unlock()
				if u.watches != 2 { // one to learn how watches are written, one to follow
					t.Errorf("the feed has opened %d watches", u.watches)
				}
			})
		})
	}
}

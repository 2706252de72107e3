package snapshot

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// TestFeedsComeAgainWhenTheyAreToldTo, whether they learn, load or follow.
func TestFeedsComeAgainWhenTheyAreToldTo(t *testing.T) {
	for name, refuses := range map[string]func(*http.Request) bool{
		"learning": func(*http.Request) bool { return true },
		"loading":  func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "sendInitialEvents") },
		"following": func(r *http.Request) bool {
			return strings.Contains(r.URL.RawQuery, "allowWatchBookmarks=true&resourceVersion=")
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			u, refused := &upstream{revision: 9, watch: func(uint64) []string { return []string{cut} }}, 0
			fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				if !refuses(r) {
					return 0, nil
				}
				refused++
				return 0, busy(r, "40")
			}}, 100*time.Second)
			if refused < 1 || refused > 3 {
				t.Errorf("asked %d times in 100s, told to wait for 40s", refused)
			}
		})
	}
}

// TestFeedsAreWoken: who names a revision while no stream is read gets it from the upstream, and wakes the
// feed, unless the upstream wants to be spared. So does a 410 to somebody's watch.
func TestFeedsAreWoken(t *testing.T) {
	names := func(t *testing.T, c *Collection) {
		t.Helper()
		if _, why := c.Latest(t.Context(), 0); why != reason.None {
			t.Errorf("any state: %q", why)
		}
		if _, why := c.Latest(t.Context(), 8); why != reason.NotProven {
			t.Errorf("a state below the newest: %q", why)
		}
	}
	for name, tt := range map[string]struct {
		after string
		wake  func(*testing.T, *Collection)
		soon  bool
	}{
		"somebody names the newest state": {after: "0", soon: true, wake: names},
		"a watch is too old":              {after: "0", soon: true, wake: func(_ *testing.T, c *Collection) { c.requestProbe() }},
		"the upstream is to be spared":    {after: "40", wake: names},
	} {
		inBubble(t, name, func(t *testing.T) {
			const down = 50 * time.Second
			u, begun := &upstream{revision: 7, changes: true}, time.Now()
			u.watch = func(uint64) []string {
				if time.Since(begun) < down {
					return []string{cut}
				}
				return []string{bookmark(9, "")}
			}
			c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				if kindOf(r) == "watch" && time.Since(begun) < down {
					return 0, busy(r, tt.after)
				}
				return 0, nil
			}}, down)
			tt.wake(t, c)
			time.Sleep(aMoment)
			synctest.Wait()
			if got := c.view.Load().streams; got != tt.soon {
				t.Errorf("followed again a moment later: %v, want %v", got, tt.soon)
			}
			if _, why := c.Latest(t.Context(), 9); tt.soon && why != reason.None {
				t.Errorf("the newest state, when it is followed again: %q", why)
			}
		})
	}
}

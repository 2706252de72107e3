package snapshot

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

// TestWhatAFeedDoesNotBelieve: what an upstream tells that cannot be, and what follows.
func TestWhatAFeedDoesNotBelieve(t *testing.T) {
	const quiet = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%s"%s},"items":[%s]}` + "\n"
	for name, tt := range map[string]struct {
		tells  string // on the first watch
		meddle func(r *http.Request, kind string, n int) *http.Response
		want   reason.Reason
		loads  int // streaming lists; at least
	}{
		"an event that is no JSON is not passed over":  {tells: `{"type":"MODIFIED","object":{"kind":"ConfigMap",}}` + "\n", loads: 2},
		"an event that cannot be read is not skipped":  {tells: strings.Replace(inEvent("MODIFIED", itemBAt(12)), "ConfigMap", "Secret", 1), loads: 2},
		"an event without a revision is not skipped":   {tells: strings.Replace(inEvent("MODIFIED", itemB), `"resourceVersion":"7"`, `"x":"7"`, 1), loads: 2},
		"a type of events that nobody knows":           {tells: strings.Replace(inEvent("MODIFIED", itemBAt(12)), "MODIFIED", "MOVED", 1), loads: 2},
		"what is deleted and not there":                {tells: inEvent("DELETED", strings.Replace(itemBAt(12), `"b"`, `"c"`, 1)), loads: 2},
		"a change below the revision that was reached": {tells: inEvent("MODIFIED", itemB), loads: 2},
		"a bookmark below the revision of the load":    {tells: bookmark(8, ""), loads: 2},
		"a streaming list that is silent is begun anew": {loads: 1, meddle: func(r *http.Request, kind string, n int) *http.Response {
			if kind != "load" || n > 1 {
				return nil
			}
			silent, in := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
			res := answered(r, http.StatusOK, "")
			res.Body = silent
			return res
		}},
		"pages of two revisions": {want: reason.Warming, meddle: func(r *http.Request, kind string, _ int) *http.Response {
			switch q := r.URL.Query(); {
			case kind == "load":
				return answered(r, http.StatusUnprocessableEntity, "")
			case q.Get("resourceVersionMatch") == "Exact":
				return answered(r, http.StatusOK, fmt.Sprintf(quiet, q.Get("resourceVersion"), "", itemA+","+itemB))
			case q.Get("continue") != "":
				return answered(r, http.StatusOK, fmt.Sprintf(quiet, "9", "", itemB))
			case q.Get("limit") == fmt.Sprint(initialLimit):
				return answered(r, http.StatusOK, fmt.Sprintf(quiet, "8", `,"continue":"x"`, itemA))
			}
			return nil
		}},
		"a state that the upstream writes in another way": {want: reason.Form, loads: 1, meddle: func(r *http.Request, _ string, _ int) *http.Response {
			if q := r.URL.Query(); q.Get("resourceVersionMatch") == "Exact" {
				return answered(r, http.StatusOK, fmt.Sprintf(quiet, q.Get("resourceVersion"), "", itemA+","+strings.Replace(itemB, "}}", `},"data":null}`, 1)))
			}
			return nil
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			told := false
			u := &upstream{revision: 9, watch: func(uint64) []string {
				if told {
					return nil
				}
				told = true
				return []string{tt.tells}
			}}
			var seen atomic.Int64
			c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				kind := kindOf(r)
				if tt.meddle == nil {
					return 0, nil
				}
				if kind == "load" {
					seen.Add(1)
				}
				return 0, tt.meddle(r, kind, int(seen.Load()))
			}}, time.Minute)
			if _, absence := c.Latest(t.Context(), 0); absence != tt.want {
				t.Errorf("the newest state: %q, want %q", absence, tt.want)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.loads < tt.loads || tt.loads == 1 && u.loads > 1 && tt.want == reason.None {
				t.Errorf("loaded %d times, want %d", u.loads, tt.loads)
			}
		})
	}
}

// TestWhatIsNotOursIsSeldomAskedFor: a 403 is remembered.
func TestWhatIsNotOursIsSeldomAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		u := &upstream{revision: 9}
		c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
			asked.Add(1)
			return 0, answered(r, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","code":403}`)
		}}, time.Hour)
		if _, absence := c.Latest(t.Context(), 0); absence != reason.NotPermitted {
			t.Errorf("the newest state: %q", absence)
		}
		if n := asked.Load(); n < 10 || n > 45 {
			t.Errorf("asked %d times in an hour", n)
		}
	})
}

// TestFewLoadAtOnce.
func TestFewLoadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loading, most atomic.Int64
		slow := meddled{&upstream{revision: 9, watch: func(uint64) []string { return nil }}, func(r *http.Request) (time.Duration, *http.Response) {
			if kindOf(r) != "load" {
				return 0, nil
			}
			most.Store(max(most.Load(), loading.Add(1)))
			time.Sleep(5 * time.Second)
			loading.Add(-1)
			return 0, nil
		}}
		all := collectionsOf(t, slow)
		for i := range 3 * maxLoads {
			_, absence := all.Use(resourceNamed(fmt.Sprint("r", i)))
			expect.Same(t, reason.None, absence)
		}
		time.Sleep(time.Minute)
		if n := most.Load(); n != maxLoads {
			t.Errorf("%d loaded at the same time", n)
		}
	})
}

// TestWhereMemoryIsShort: at nine tenths of the bound histories become shorter, and what nobody asks
// for goes; what the policy keeps stays.
func TestWhereMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, later = 1 << 20, 4 * time.Minute
		fake := func() *upstream {
			another := strings.Replace(itemBAt(12), `"b"`, `"c"`, 1)
			return &upstream{revision: 9, watch: func(uint64) []string { return nil }, tells: inEvent("ADDED", another), pauses: later}
		}
		all := collectionsOf(t, byName{"kept": fake(), "idle": fake(), "used": fake()}, func(c *Config) {
			c.Bytes, c.Limits.Staleness = bound, time.Hour
		})
		found := map[string]*Collection{}
		found["kept"], _ = all.Keep(resourceNamed("kept"))
		found["idle"], _ = all.Use(resourceNamed("idle"))
		found["used"], _ = all.Use(resourceNamed("used"))
		time.Sleep(later + 30*time.Second) // before a watch comes to its timeout
		synctest.Wait()
		for name, c := range found {
			if v := c.view.Load(); v.To != 12 {
				t.Fatalf("%s is at %d", name, v.To)
			} else if _, absence := v.exact(9); absence != reason.None {
				t.Fatalf("%s at its first revision: %q", name, absence)
			}
		}
		found["used"].Touch()
		all.budget.Add(bound*19/20 - all.budget.Used.Load())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for name, want := range map[string]reason.Reason{"kept": reason.None, "idle": reason.Memory, "used": reason.None} {
			v := found[name].view.Load()
			if v.absence != want {
				t.Errorf("%s has no state: %q, want %q", name, v.absence, want)
			}
			if _, absence := v.exact(9); want == reason.None && absence != reason.History {
				t.Errorf("%s at its first revision: %q", name, absence)
			}
		}
	})
}

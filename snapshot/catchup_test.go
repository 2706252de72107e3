package snapshot

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// After a broken stream was resumed it tells what has happened long ago. That is no sign of life: the
// newest state is given again when the span has come to where the upstream was.
func TestOldEventsAreNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		c := liveCollection(Limits{History: time.Hour, Silence: bound})
		latest := func() Absence {
			_, absence := c.Latest(t.Context(), 0)
			return absence
		}
		tell := func(rev uint64) {
			t.Helper()
			if err := c.apply(change{kind: modified, key: "ns/a", revision: rev, object: &Object{Key: "ns/a", Revision: rev}}); err != nil {
				t.Fatal(err)
			}
		}
		tell(11)
		if got := latest(); got != Known {
			t.Fatalf("a live span: %q", got)
		}
		time.Sleep(10 * bound) // of the bubble: the connection is dead
		c.catchUp(30, time.Now())
		for _, rev := range []uint64{12, 29} {
			tell(rev)
			if got := latest(); got != Stale {
				t.Errorf("at revision %d of 30, a minute old: %q, want %q", rev, got, Stale)
			}
			if _, absence := c.Exact(t.Context(), rev); absence != Known {
				t.Errorf("exactly revision %d: %q", rev, absence)
			}
		}
		tell(31)
		if got := latest(); got != Known {
			t.Errorf("beyond revision 30: %q", got)
		}
		time.Sleep(bound - 1)
		if err := c.progress(31); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(bound - 1); latest() != Known {
			t.Errorf("after a later bookmark: %q", latest())
		}
	})
}

// After a silence longer than the bound what a stream tells may have waited for as long: this process
// may have stood still. A probe says what is new.
func TestAStreamThatWasSilentProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		c := liveCollection(Limits{History: time.Hour, Silence: bound})
		tell := func(rev uint64, want Absence) {
			t.Helper()
			if err := c.progress(rev); err != nil {
				t.Fatal(err)
			}
			if _, got := c.Latest(t.Context(), 0); got != want {
				t.Errorf("at revision %d: %q, want %q", rev, got, want)
			}
		}
		old := time.Now() // a probe was asked for before the silence, and is answered after it
		time.Sleep(bound - 1)
		tell(11, Known)
		time.Sleep(bound)
		tell(12, Stale)
		if !c.doubtful() {
			t.Error("there is no doubt")
		}
		if !c.covers(12, old) {
			t.Error("what was true before the silence is covered")
		}
		tell(13, Stale)
		if c.covers(20, time.Now()) || c.doubtful() {
			t.Error("how far the upstream is was not taken in")
		}
		tell(19, Stale)
		time.Sleep(bound / 2)
		if c.covers(30, time.Now()) { // which is no later goal
			t.Error("revision 30 is covered by 19")
		}
		tell(20, Known)
		time.Sleep(bound)
		tell(21, Stale)
		if !c.covers(21, time.Now()) {
			t.Error("revision 21 is not covered by 21")
		}
		tell(22, Known)
	})
}

// A state that was loaded since is new, whatever was to be caught up with before.
func TestLoadedStatesAreNew(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Silence: time.Hour})
	c.catchUp(1000, time.Now())
	c.drop(Warming)
	state := newTree(false)
	c.open(state, 0, 20, &Frame{}, time.Now())
	if c.behind != (mark{}) {
		t.Errorf("%d is still to be caught up with", c.behind.revision)
	}
}

// slowPages is an upstream without streaming lists, which has two pages and takes long for each.
type slowPages struct {
	*upstream
	takes time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s slowPages) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body string) *http.Response {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {jsonType}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}
	}
	loaded := &upstream{revision: 9}
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		return answer(http.StatusUnprocessableEntity, ""), nil
	case query.Get("resourceVersionMatch") == "Exact":
		return answer(http.StatusOK, loaded.list("", itemA+","+itemB)), nil
	case query.Get("continue") != "":
		time.Sleep(s.takes)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.revision = 30
		return answer(http.StatusOK, loaded.list("", itemB)), nil
	case query.Get("limit") == strconv.Itoa(initialLimit):
		time.Sleep(s.takes)
		return answer(http.StatusOK, loaded.list(`,"continue":"x"`, itemA)), nil
	}
	return s.upstream.RoundTrip(r)
}

// A state is as new as the moment at which it was asked for. If to load it took longer than the bound,
// it is not given before its watch has come to where the upstream was when that began.
func TestALongLoadIsNotNew(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		told  uint64
		want  Absence
	}{
		{takes: 55 * time.Second, told: 12, want: Stale},
		{takes: 55 * time.Second, told: 31, want: Known},
		{takes: 40 * time.Second, told: 12, want: Known},
	} {
		t.Run(fmt.Sprint(tt.takes, tt.told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, watch: func(from uint64) []string {
					if from >= tt.told {
						return nil
					}
					return []string{bookmark(tt.told, "")}
				}}
				c := fed(t, slowPages{u, tt.takes}, 2*tt.takes+time.Second)
				v := c.view.Load()
				if v.to() != tt.told {
					t.Fatalf("the span has come to %d, the watch told %d", v.to(), tt.told)
				}
				if _, got := v.latest(time.Now(), c.limits.Silence, 0); got != tt.want {
					t.Errorf("revision %d of 30, heard of %v ago: %q, want %q", tt.told, time.Since(v.heard), got, tt.want)
				}
				if old := time.Since(v.heard) > 2*tt.takes; old != (tt.told < 30) {
					t.Errorf("revision %d of 30 was heard of %v ago, the list was asked for %v ago", tt.told, time.Since(v.heard), 2*tt.takes+time.Second)
				}
				if _, got := v.exact(9); got != Known {
					t.Errorf("exactly what was loaded: %q", got)
				}
			})
		})
	}
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// However long a stream lags, and however often is asked, few goals are kept; and those that are
// make the state as new as they can.
func TestGoalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = time.Minute
		c := liveCollection(Limits{History: time.Hour, Staleness: bound})
		for rev := uint64(11); rev < 2000; rev++ {
			time.Sleep(bound / 1000)
			c.expect(probed{rev, c.at(time.Now())})
			if n := len(c.goals); n > maxGoals {
				t.Fatalf("%d goals", n)
			}
		}
		expect.NoError(t, c.progress(1999))
		if len(c.goals) > 1 {
			t.Errorf("goals that were reached are left: %v", c.goals)
		}
		if old := time.Since(c.view.Load().heard.Sent); old > bound/20 {
			t.Errorf("the state is %v old", old)
		}
		for name, begin := range map[string]func(){
			"dropped":     func() { c.drop(reason.Warming) },
			"loaded anew": func() { c.load(index.NewTree(false), 2000) },
		} {
			c.expect(probed{3000, c.at(time.Now())})
			if begin(); len(c.goals) > 0 {
				t.Errorf("%s, and goals of before are left", name)
			}
		}
	})
}

// A state is as new as the moment at which it was asked for. If to load it took longer than the
// bound, it is not given before its watch has come to where the upstream was when that began.
func TestALongLoadIsNotNew(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		told  uint64
		want  reason.Reason
	}{
		{takes: 55 * time.Second, told: 12, want: reason.Stale},
		{takes: 55 * time.Second, told: 31, want: reason.None},
		{takes: 40 * time.Second, told: 12, want: reason.None},
	} {
		inBubble(t, fmt.Sprint(tt.takes, tt.told), func(t *testing.T) {
			u := &upstream{revision: 9, watch: func(from uint64) []string {
				if from >= tt.told {
					return nil
				}
				return []string{bookmark(tt.told, "")}
			}}
			loaded := &upstream{revision: 9}
			c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) { // two pages, and each takes long
				switch q := r.URL.Query(); {
				case kindOf(r) == "load":
					return 0, answered(r, http.StatusUnprocessableEntity, "")
				case q.Get("resourceVersionMatch") == "Exact":
					return 0, answered(r, http.StatusOK, loaded.list("", itemA+","+itemB))
				case q.Has("continue"):
					time.Sleep(tt.takes)
					u.mu.Lock()
					defer u.mu.Unlock()
					u.revision = max(30, tt.told)
					return 0, answered(r, http.StatusOK, loaded.list("", itemB))
				case q.Get("limit") == strconv.Itoa(initialLimit):
					return tt.takes, answered(r, http.StatusOK, loaded.list(`,"continue":"x"`, itemA))
				}
				return 0, nil
			}}, 2*tt.takes+time.Second)
			v := c.view.Load()
			if v.To != tt.told {
				t.Fatalf("the state has come to %d, the watch told %d", v.To, tt.told)
			}
			if _, got := v.latest(time.Now(), c.limits.Staleness, 0); got != tt.want {
				t.Errorf("revision %d of 30, heard of %v ago: %q, want %q", tt.told, time.Since(v.heard.Sent), got, tt.want)
			}
			if old := time.Since(v.heard.Sent) > 2*tt.takes; old != (tt.told < 30) {
				t.Errorf("revision %d of 30 was heard of %v ago, the list was asked for %v ago", tt.told, time.Since(v.heard.Sent), 2*tt.takes+time.Second)
			}
			if _, got := v.exact(9); got != reason.None {
				t.Errorf("exactly what was loaded: %q", got)
			}
		})
	}
}

// slowLoad is an upstream whose streaming list takes a time, and which tells a moment after it what
// has happened meanwhile. It has no history for another watch.
type slowLoad struct {
	*upstream
	takes time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s slowLoad) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		resp, err := s.upstream.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		told := resp.Body
		in, out := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = out.CloseWithError(r.Context().Err()) })
		go func() {
			for end := time.Now().Add(s.takes); time.Now().Before(end); {
				_, _ = io.WriteString(out, bookmark(5, ""))
				if !clock.Sleep(r.Context(), loadSilence/2) {
					return
				}
			}
			s.mu.Lock()
			s.revision = 30
			s.mu.Unlock()
			_, _ = io.CopyN(out, told, resp.ContentLength)
			time.Sleep(time.Second)
			_, _ = io.WriteString(out, bookmark(30, ""))
			_, _ = io.Copy(out, told)
			_ = out.Close()
		}()
		resp.Body = struct {
			io.Reader
			io.Closer
		}{in, in}
		return resp, nil
	case query.Get("resourceVersionMatch") == "Exact":
		return (&upstream{revision: 9}).RoundTrip(r)
	case query.Get("watch") != "" && query.Get("fieldSelector") == "":
		return &http.Response{StatusCode: http.StatusGone, Body: http.NoBody, Request: r}, nil
	}
	return s.upstream.RoundTrip(r)
}

// A state that took longer to load than it may be old does not lose its watch for that, before that
// has told what is on its way.
func TestALongLoadKeepsItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 9, watch: func(uint64) []string { return nil }}
		c := fed(t, slowLoad{u, 2 * time.Minute}, 2*time.Minute+20*time.Second)
		if u.loads != 1 {
			t.Errorf("loaded %d times", u.loads)
		}
		if s, got := c.Latest(t.Context(), 0); got != reason.None || s.Revision != 30 {
			t.Errorf("at revision %d: %q", s.Revision, got)
		}
	})
}

// TestLoadsThatTrickle hold up no other load for longer than a moment, and end; the state is then
// asked for again, but not soon.
func TestLoadsThatTrickle(t *testing.T) {
	for name, slowly := range map[string]func(*upstream) http.RoundTripper{
		"streaming lists": func(u *upstream) http.RoundTripper { return slowLoad{u, time.Hour} },
		"pages": func(u *upstream) http.RoundTripper {
			return meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
				switch q := r.URL.Query(); {
				case kindOf(r) == "load":
					return 0, answered(r, http.StatusUnprocessableEntity, "")
				case q.Get("limit") == strconv.Itoa(initialLimit): // there is always another page
					u.mu.Lock()
					defer u.mu.Unlock()
					if !q.Has("continue") {
						u.loads++
					}
					return 20 * time.Second, answered(r, http.StatusOK, u.list(`,"continue":"x"`, ""))
				}
				return 0, nil
			}}
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			u := quiet()
			slowly, quickly := slowly(u), quiet()
			c := collectionsOf(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(r.URL.Path, "/apis/slow") {
					return slowly.RoundTrip(r)
				}
				return quickly.RoundTrip(r)
			}))
			var slow []*Collection
			for i := range maxLoads {
				r := configMaps
				r.Group = fmt.Sprint("slow", i)
				of, _ := c.Use(r)
				slow = append(slow, of)
			}
			synctest.Wait()
			quick, _ := c.Keep(configMaps)
			time.Sleep(turnFor + time.Second)
			if why := quick.AwaitLoad(t.Context(), 0, false); why != reason.None {
				t.Errorf("another resource: %q", why)
			}
			time.Sleep(loadFor)
			for _, of := range slow {
				if err := of.Trouble(); !errors.Is(err, errSlow) {
					t.Errorf("after %v: %v", loadFor, err)
				}
			}
			time.Sleep(unlikelyRetry - 2*turnFor)
			if u.loads != maxLoads {
				t.Errorf("loaded again %d times within %v", u.loads-maxLoads, unlikelyRetry)
			}
		})
	}
}

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

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// What a stream tells may have happened long ago, whether it was broken, silent, or only ever
// slower: a state is as new as the last probe that it has come to, and no event makes it newer.
func TestOnlyProbesSayHowNewAStateIs(t *testing.T) {
	const bound = 8 * time.Second
	type step struct {
		after time.Duration
		// tell is a revision that the stream tells of, by an event or by a bookmark; probe one that
		// a read of the upstream gave.
		tell, mark, probe uint64
		want              reason.Reason
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"events alone", []step{{after: bound - 1, tell: 11, want: reason.None}, {after: 1, tell: 12, want: reason.Stale}, {after: bound, tell: 13, want: reason.Stale}}},
		{"bookmarks alone", []step{{after: bound - 1, mark: 11, want: reason.None}, {after: 1, mark: 12, want: reason.Stale}, {after: bound, mark: 12, want: reason.Stale}}},
		{"in touch", []step{{after: bound / 2, tell: 11}, {probe: 11, want: reason.None}, {after: bound - 1, tell: 12, want: reason.None}, {after: 1, want: reason.Stale}, {probe: 12, want: reason.None}}},
		{"behind after a silence", []step{
			{after: 10 * bound, tell: 11, want: reason.Stale}, {probe: 30, want: reason.Stale}, {tell: 12, want: reason.Stale}, {tell: 29, want: reason.Stale}, {tell: 31, want: reason.None},
		}},
		{"behind ever more", []step{
			{after: bound / 2, tell: 11, probe: 20, want: reason.None},
			{after: bound / 4, tell: 12, probe: 30, want: reason.None},
			{after: bound / 4, tell: 19, probe: 40, want: reason.Stale}, // the first goal would be as old as half the bound
			{tell: 20, want: reason.None},
			{after: bound / 2, mark: 29, want: reason.Stale},
			{mark: 30, want: reason.None},
			{after: bound / 4, want: reason.Stale},
			{tell: 41, want: reason.None},
		}},
		{"where nothing changes", []step{{after: bound / 2, probe: 20}, {after: bound / 2, probe: 20, want: reason.Stale}, {after: bound / 2, mark: 20, want: reason.None}, {after: bound/2 - 1, want: reason.None}, {after: 1, want: reason.Stale}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := liveCollection(Limits{History: time.Hour, Staleness: bound})
				for i, s := range tt.steps {
					time.Sleep(s.after) // of the bubble
					var err error
					if s.tell > 0 {
						err = c.apply(change{kind: wire.Modified, key: "ns/a", revision: s.tell, object: &index.Object{Key: "ns/a", Revision: s.tell}})
					}
					if s.mark > 0 {
						err = c.progress(s.mark)
					}
					expect.NoError(t, err)
					if s.probe > 0 {
						c.expect(probed{s.probe, c.at(time.Now())})
					}
					if _, got := c.Latest(t.Context(), 0); got != s.want {
						t.Errorf("step %d: %q, want %q", i, got, s.want)
					}
					if to := c.view.Load().To; s.tell > 0 {
						if _, got := c.Exact(t.Context(), to); got != reason.None {
							t.Errorf("step %d: exactly revision %d: %q", i, to, got)
						}
					}
				}
			})
		})
	}
}

// A probe that was asked for before a silence and answered after it says how new the state was
// then.
func TestAProbeIsOfWhenItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
		asked := time.Now()
		time.Sleep(time.Minute)
		if !c.expect(probed{10, c.at(asked)}) {
			t.Error("what is there is not covered")
		}
		if _, got := c.Latest(t.Context(), 0); got != reason.Stale {
			t.Errorf("got %q, want %q", got, reason.Stale)
		}
	})
}

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
		c.drop(reason.Warming)
		if len(c.goals) > 0 {
			t.Error("goals of another past are left")
		}
	})
}

// A state that was loaded since is new, whatever was to be caught up with before.
func TestLoadedStatesAreNew(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Hour})
	c.expect(probed{1000, c.at(time.Now())})
	c.load(index.NewTree(false), 2000)
	if len(c.goals) > 0 {
		t.Errorf("still to be caught up with: %v", c.goals)
	}
}

// slowPages is an upstream without streaming lists, which has two pages and takes long for each.
type slowPages struct {
	*upstream
	takes time.Duration
	now   uint64 // its revision when that is over
}

// RoundTrip implements http.RoundTripper.
func (s slowPages) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body string) *http.Response {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {media.JSONType}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
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
		s.revision = s.now
		return answer(http.StatusOK, loaded.list("", itemB)), nil
	case query.Get("limit") == strconv.Itoa(initialLimit):
		time.Sleep(s.takes)
		return answer(http.StatusOK, loaded.list(`,"continue":"x"`, itemA)), nil
	}
	return s.upstream.RoundTrip(r)
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
		t.Run(fmt.Sprint(tt.takes, tt.told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, watch: func(from uint64) []string {
					if from >= tt.told {
						return nil
					}
					return []string{bookmark(tt.told, "")}
				}}
				c := fed(t, slowPages{u, tt.takes, max(30, tt.told)}, 2*tt.takes+time.Second)
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

// bySpeed is an upstream that has resources of a group "slow", whose lists only trickle, and others.
type bySpeed struct{ slow, quick http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s bySpeed) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/apis/slow") {
		return s.slow.RoundTrip(r)
	}
	return s.quick.RoundTrip(r)
}

// endlessPages is an upstream without streaming lists, whose lists do not come to an end.
type endlessPages struct{ *upstream }

// RoundTrip implements http.RoundTripper.
func (e endlessPages) RoundTrip(r *http.Request) (*http.Response, error) {
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") != "":
		return tooBusy(r, http.StatusUnprocessableEntity), nil
	case q.Get("limit") == strconv.Itoa(initialLimit):
		if !q.Has("continue") {
			e.mu.Lock()
			e.loads++
			e.mu.Unlock()
		}
		if !clock.Sleep(r.Context(), 20*time.Second) {
			return nil, r.Context().Err()
		}
		body := io.NopCloser(strings.NewReader(e.list(`,"continue":"x"`, "")))
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media.JSONType}}, Body: body, Request: r}, nil
	}
	return e.upstream.RoundTrip(r)
}

// TestLoadsThatTrickle hold up no other load for longer than a moment, and end; the state is then
// asked for again, but not soon.
func TestLoadsThatTrickle(t *testing.T) {
	for name, slowly := range map[string]func(*upstream) http.RoundTripper{
		"streaming lists": func(u *upstream) http.RoundTripper { return slowLoad{u, time.Hour} },
		"pages":           func(u *upstream) http.RoundTripper { return endlessPages{u} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := quiet()
				c := collectionsOf(t, bySpeed{slowly(u), quiet()}, Config{})
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
		})
	}
}

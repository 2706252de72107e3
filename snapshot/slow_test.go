package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
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

// meddled is an upstream before which somebody delays or replaces some answers.
type meddled struct {
	*upstream
	// meddle returns how long an answer is held back, and another in its place if it is not nil. It
	// is called without the upstream's lock.
	meddle func(*http.Request) (hold time.Duration, instead *http.Response)
}

// RoundTrip implements http.RoundTripper.
func (m meddled) RoundTrip(r *http.Request) (*http.Response, error) {
	hold, instead := m.meddle(r)
	if !clock.Sleep(r.Context(), hold) {
		return nil, r.Context().Err()
	}
	if instead != nil {
		return instead, nil
	}
	return m.upstream.RoundTrip(r)
}

// tooBusy is an answer of an API server.
func tooBusy(r *http.Request, code int) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Retry-After": {"1"}}, Body: io.NopCloser(strings.NewReader(aStatus)), Request: r,
	}
}

// kindOf says what a request of a feed is.
func kindOf(r *http.Request) string {
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") != "":
		return "load"
	case q.Get("watch") != "" && q.Get("fieldSelector") == "":
		return "watch"
	case q.Get("fieldSelector") != "" && q.Get("resourceVersionMatch") == "":
		return "probe"
	}
	return "list"
}

const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 6 (8)","reason":"Expired","code":410}}` + "\n"

// TestDoubtIsNotLoss: an API server that is slow, or refuses some requests, on a quiet resource
// whose newest change it has forgotten, costs no second load, and nothing of the history.
func TestDoubtIsNotLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		meddle func(r *http.Request, kind string, n int, since time.Duration) (time.Duration, *http.Response)
		// cuts: the first watch breaks.
		cuts bool
		// compares: names and revisions are compared, since the newest change is forgotten.
		compares bool
	}{
		"one slow probe": {meddle: func(_ *http.Request, kind string, _ int, since time.Duration) (time.Duration, *http.Response) {
			if kind == "probe" && since > time.Minute && since < 80*time.Second {
				return probeTimeout / 2, nil
			}
			return 0, nil
		}},
		"a probe without an answer": {meddle: func(_ *http.Request, kind string, _ int, since time.Duration) (time.Duration, *http.Response) {
			if kind == "probe" && since > time.Minute && since < 80*time.Second {
				return time.Hour, nil
			}
			return 0, nil
		}},
		"429 when a watch is opened again": {meddle: func(r *http.Request, kind string, n int, _ time.Duration) (time.Duration, *http.Response) {
			if kind == "watch" && n%2 == 1 {
				return 0, tooBusy(r, http.StatusTooManyRequests)
			}
			return 0, nil
		}},
		"503 when a watch is opened again": {meddle: func(r *http.Request, kind string, n int, _ time.Duration) (time.Duration, *http.Response) {
			if kind == "watch" && n%3 != 0 {
				return 0, tooBusy(r, http.StatusServiceUnavailable)
			}
			return 0, nil
		}},
		"watches answered after six seconds": {meddle: func(_ *http.Request, kind string, _ int, _ time.Duration) (time.Duration, *http.Response) {
			if kind == "watch" {
				return 6 * time.Second, nil
			}
			return 0, nil
		}},
		"everything is late by twenty seconds": {compares: true, meddle: func(_ *http.Request, _ string, _ int, since time.Duration) (time.Duration, *http.Response) {
			if since > time.Minute && since < 40*time.Minute {
				return 20 * time.Second, nil
			}
			return 0, nil
		}},
		"half of everything is refused": {cuts: true, compares: true, meddle: func(r *http.Request, _ string, n int, since time.Duration) (time.Duration, *http.Response) {
			if since > time.Second && since < 40*time.Minute && n%2 == 0 {
				return 0, tooBusy(r, http.StatusTooManyRequests)
			}
			return 0, nil
		}},
		"a watch that breaks": {cuts: true, compares: true, meddle: func(*http.Request, string, int, time.Duration) (time.Duration, *http.Response) { return 0, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9}
				u.watch = func(from uint64) []string {
					switch {
					case from < 9:
						return []string{expired, cut}
					case tt.cuts && u.watches == 1:
						return []string{cut}
					}
					return nil
				}
				begun, n := time.Now(), map[string]int{}
				c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					u.mu.Lock()
					defer u.mu.Unlock()
					kind := kindOf(r)
					n[kind]++
					return tt.meddle(r, kind, n[kind], time.Since(begun))
				}}, time.Hour)
				u.mu.Lock()
				defer u.mu.Unlock()
				if u.loads != 1 || u.watches < 4 {
					t.Errorf("loaded %d times, with %d watches", u.loads, u.watches)
				}
				if got := c.life.counts.stats(); got.Restarts() > 0 {
					t.Errorf("got %+v", got)
				}
				if (u.compared > 0) != tt.compares {
					t.Errorf("names and revisions were compared %d times", u.compared)
				}
				if _, absence := c.Exact(t.Context(), 9); absence != reason.None {
					t.Errorf("what was loaded: %q", absence)
				}
				if _, absence := c.Latest(t.Context(), 0); absence != reason.None {
					t.Errorf("in the end: %q", absence)
				}
			})
		})
	}
}

// TestAnotherPastIsRecognised where the newest change is forgotten: by its names, its revisions, or
// the bytes of the newest object. Then all is dropped and loaded again.
func TestAnotherPastIsRecognised(t *testing.T) {
	for name, tt := range map[string]struct {
		exactly []string
		loads   int
	}{
		"the same":             {[]string{itemA, itemB}, 1},
		"an object less":       {[]string{itemB}, 2},
		"an object more":       {[]string{itemA, itemB, strings.Replace(itemB, `"b"`, `"c"`, 1)}, 2},
		"another revision":     {[]string{strings.Replace(itemA, `"5"`, `"4"`, 1), itemB}, 2},
		"other bytes":          {[]string{itemA, strings.Replace(itemB, `"resourceVersion"`, `"uid":"1","resourceVersion"`, 1)}, 2},
		"nothing, and no more": {[]string{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, exactly: func(string) []string { return tt.exactly }}
				u.watch = func(from uint64) []string {
					switch {
					case from < 9:
						return []string{expired, cut}
					case u.watches == 1:
						return []string{cut}
					}
					return nil
				}
				c := fed(t, u, time.Minute)
				if u.loads != tt.loads || u.compared != 1 {
					t.Errorf("loaded %d times, want %d; compared %d times", u.loads, tt.loads, u.compared)
				}
				if got := c.life.counts.stats().Losses[reason.Unproven]; got != uint64(tt.loads-1) {
					t.Errorf("%d losses", got)
				}
			})
		})
	}
}

// TestHistoryStaysWithTheSameServers: where names and revisions had to be compared, what was before
// the state that was compared is believed only if no API server was started again.
func TestHistoryStaysWithTheSameServers(t *testing.T) {
	changed := strings.Replace(itemA, `"5"`, `"12"`, 1)
	for name, tt := range map[string]struct {
		same  func(tries int) (bool, error)
		stays bool
	}{
		"the same":            {func(int) (bool, error) { return true, nil }, true},
		"others":              {func(int) (bool, error) { return false, nil }, false},
		"others meanwhile":    {func(tries int) (bool, error) { return tries == 1, nil }, false},
		"nobody can be asked": {func(tries int) (bool, error) { return true, map[bool]error{true: errors.New("busy")}[tries < 3] }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, exactly: func(string) []string { return []string{changed, itemB} }}
				u.watch = func(from uint64) []string {
					switch {
					case u.watches == 1:
						return []string{inEvent("MODIFIED", changed), bookmark(20, ""), cut}
					case from < 20:
						return []string{expired, cut}
					}
					return nil
				}
				tries := 0
				c := fedBy(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					u.mu.Lock()
					defer u.mu.Unlock()
					if kindOf(r) == "probe" && u.loads > 0 {
						u.revision = 20
					}
					return 0, nil
				}}, time.Minute, func(context.Context) (bool, error) {
					tries++
					return tt.same(tries)
				})
				if u.loads != 1 || u.compared != 1 {
					t.Errorf("loaded %d times, compared %d times in %d tries", u.loads, u.compared, tries)
				}
				if _, absence := c.Exact(t.Context(), 9); (absence == reason.None) != tt.stays {
					t.Errorf("what was loaded: %q", absence)
				}
				if s, absence := c.Exact(t.Context(), 20); absence != reason.None || s.tree.Len() != 2 {
					t.Errorf("what was compared: %q", absence)
				}
				if _, absence := c.Latest(t.Context(), 0); absence != reason.None {
					t.Errorf("the newest: %q", absence)
				}
			})
		})
	}
}

// TestClosedSpansInDoubt: what is known of the past before a gap stays if the gap was short, or the
// API servers are the ones from before. The new state alone shows nothing, if every object has
// changed since.
func TestClosedSpansInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		gap  time.Duration
		same func(context.Context) (bool, error)
		want reason.Reason
	}{
		"a short gap":                     {gap: clock.Orderly / 2},
		"a long gap, the same servers":    {gap: 2 * clock.Orderly, same: func(context.Context) (bool, error) { return true, nil }},
		"a long gap, others":              {gap: 2 * clock.Orderly, same: func(context.Context) (bool, error) { return false, nil }, want: reason.History},
		"a long gap, nobody knows":        {gap: 2 * clock.Orderly, want: reason.History},
		"a long gap, who cannot be asked": {gap: 2 * clock.Orderly, same: func(context.Context) (bool, error) { return true, errors.New("busy") }, want: reason.History},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
				f := &feed{collection: c, sameServers: tt.same, log: slog.New(slog.DiscardHandler)}
				f.doubtPast(t.Context(), time.Now().Add(time.Hour)) // a live span is not in doubt here
				c.close()
				time.Sleep(tt.gap)
				f.doubtPast(t.Context(), time.Now())
				state := index.NewTree(false)
				state.Set(&index.Object{Key: "ns/a", Revision: 20})
				c.open(state, 0, 20, wire.FixedFrame("PodList", "v1"), nil, c.probes.Next())
				if _, got := c.Exact(t.Context(), 10); got != tt.want {
					t.Errorf("a revision from before: %q, want %q", got, tt.want)
				}
				if _, got := c.Latest(t.Context(), 0); got != reason.None {
					t.Errorf("the newest state: %q", got)
				}
			})
		})
	}
}

// TestForgottenChanges: where kube-apiserver knows the span's end, but not what came after it,
// another state is loaded, and what was known stays.
func TestForgottenChanges(t *testing.T) {
	for name, refuses := range map[string]bool{"in the stream": false, "in place of it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9}
				u.watch = func(uint64) []string {
					switch {
					case u.watches == 1:
						return []string{bookmark(20, ""), cut}
					case u.loads == 1:
						return []string{expired, cut}
					}
					return nil
				}
				c := fedBy(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					u.mu.Lock()
					defer u.mu.Unlock()
					if u.loads == 1 && kindOf(r) == "probe" {
						u.revision = 30
					}
					if refuses && u.loads == 1 && kindOf(r) == "watch" {
						return 0, tooBusy(r, http.StatusGone)
					}
					return 0, nil
				}}, time.Minute, func(context.Context) (bool, error) { return true, nil })
				if got := c.life.counts.stats(); u.loads != 2 || got.Losses[reason.Expired] != 1 || got.Restarts() != 1 || u.compared != 1 {
					t.Errorf("loaded %d times, compared %d times, %+v", u.loads, u.compared, got)
				}
				for _, known := range []uint64{9, 20, 30} {
					if _, absence := c.Exact(t.Context(), known); absence != reason.None {
						t.Errorf("revision %d: %q", known, absence)
					}
				}
				if _, absence := c.Exact(t.Context(), 25); absence != reason.History {
					t.Errorf("between the spans: %q", absence)
				}
			})
		})
	}
}

// TestADeletionIsRecognised by the change before it, if both are told again, and nothing between them: in
// another past the same object may have been deleted, and others changed. Where that change is forgotten,
// the deletion is recognised by the object that was there before it, for as long as that is known, and by
// what is left.
func TestADeletionIsRecognised(t *testing.T) {
	other := strings.Replace(itemA, `"resourceVersion"`, `"uid":"1","resourceVersion"`, 1)
	change, deletion := inEvent("MODIFIED", itemBAt(8)), inEvent("DELETED", itemBAt(12))
	itemB := itemBAt(8)
	for name, tt := range map[string]struct {
		before, then []string // at the revision before the deletion, and at the newest
		breaks       time.Duration
		told         []string // when the watch is resumed; nothing if the change is forgotten
		loads        int
	}{
		"the same":                      {[]string{itemA, itemB}, []string{itemA}, time.Second, nil, 1},
		"another is left":               {[]string{itemA, itemB}, []string{other}, time.Second, nil, 2},
		"it was not there before":       {[]string{itemA}, []string{itemA}, time.Second, nil, 2},
		"it is still there":             {[]string{itemA, itemB}, []string{itemA, itemB}, time.Second, nil, 2},
		"long ago":                      {nil, []string{itemA}, 2 * time.Hour, nil, 1},
		"long ago, and another is left": {nil, []string{other}, 2 * time.Hour, nil, 2},
		"told again":                    {nil, nil, time.Second, []string{change, deletion}, 1},
		"told again, long ago":          {nil, nil, 2 * time.Hour, []string{change, deletion}, 1},
		"another changed before it":     {nil, nil, time.Second, []string{change, inEvent("MODIFIED", strings.Replace(itemA, `"5"`, `"10"`, 1)), deletion}, 2},
		"another is deleted":            {nil, nil, time.Second, []string{change, inEvent("DELETED", strings.Replace(itemA, `"5"`, `"12"`, 1))}, 2},
		"it is deleted later":           {nil, nil, time.Second, []string{change, strings.Replace(deletion, `"12"`, `"13"`, 1)}, 2},
		"it changes instead":            {nil, nil, time.Second, []string{change, strings.Replace(deletion, "DELETED", "MODIFIED", 1)}, 2},
		"it is not deleted":             {nil, nil, time.Second, []string{change}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 7, changes: true, exactly: func(rev string) []string {
					if rev == "11" {
						return tt.before
					}
					return tt.then
				}}
				u.watch = func(from uint64) []string {
					switch {
					case u.watches == 1:
						return []string{deletion, bookmark(20, "")}
					case from == 7 && u.loads == 1 && tt.told != nil:
						return append(slices.Clip(tt.told), bookmark(20, ""))
					case from < 20 && u.loads == 1:
						return []string{expired, cut}
					}
					return nil
				}
				then := meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					u.mu.Lock()
					defer u.mu.Unlock()
					if kindOf(r) == "probe" && u.loads > 0 {
						u.revision = 20
					}
					return 0, nil
				}}
				c := fed(t, breaksOnce{then, time.Now().Add(tt.breaks), new(bool)}, tt.breaks+time.Minute)
				u.mu.Lock()
				defer u.mu.Unlock()
				compared := 1
				if tt.told != nil {
					compared = 0
				}
				if u.loads != tt.loads || u.compared != compared {
					t.Errorf("loaded %d times, want %d; compared %d times; %+v", u.loads, tt.loads, u.compared, c.life.counts.stats())
				}
			})
		})
	}
}

// TestManyDeletions: of these only the last is kept, so that they take little memory.
func TestManyDeletions(t *testing.T) {
	p := resumePoint{object: &index.Object{Revision: 1}}
	for rev := uint64(2); rev < manyDeletions+2; rev++ {
		p = p.then(deletion{revision: rev})
	}
	if p.object == nil || len(p.deletions) != manyDeletions {
		t.Errorf("the resume point has %d deletions", len(p.deletions))
	}
	for rev := uint64(manyDeletions + 2); rev < manyDeletions+4; rev++ {
		if p = p.then(deletion{revision: rev}); p.object != nil || len(p.deletions) != 1 || p.deletions[0].revision != rev {
			t.Errorf("after %d deletions it is %+v", rev-1, p)
		}
	}
}

// breaksOnce is an upstream whose connection breaks at a time.
type breaksOnce struct {
	http.RoundTripper
	at     time.Time
	broken *bool
}

// RoundTrip implements http.RoundTripper.
func (b breaksOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if kind := kindOf(r); err != nil || kind != "load" && kind != "watch" || *b.broken {
		return resp, err
	}
	told := resp.Body
	in, out := io.Pipe()
	go func() {
		_, err := io.Copy(out, told)
		_ = out.CloseWithError(err)
	}()
	stop := time.AfterFunc(time.Until(b.at), func() {
		*b.broken = true
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
		_ = told.Close()
	})
	context.AfterFunc(r.Context(), func() {
		stop.Stop()
		_ = out.CloseWithError(r.Context().Err())
	})
	resp.Body = struct {
		io.Reader
		io.Closer
	}{in, told}
	return resp, nil
}

// TestASilentWatchProvesNothing: what a resumed watch has to tell may come late. A bookmark in its
// place says that there is another past (TestAfterDoubtTheUpstreamMustKnowThePast).
func TestASilentWatchProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 7, changes: true}
		late := lateBody{u, 40 * time.Second}
		u.watch = func(from uint64) []string {
			switch {
			case u.watches == 1:
				return []string{bookmark(9, ""), cut}
			case from < 9:
				return []string{inEvent("MODIFIED", itemBAt(8)), bookmark(9, "")}
			}
			return nil
		}
		c := fed(t, late, 3*time.Minute)
		if u.loads != 1 || u.compared > 0 || c.life.counts.stats().Resumes != 1 {
			t.Errorf("loaded %d times, compared %d times, %+v", u.loads, u.compared, c.life.counts.stats())
		}
		if _, absence := c.Latest(t.Context(), 0); absence != reason.None {
			t.Errorf("in the end: %q", absence)
		}
	})
}

// lateBody is an upstream whose watches from revision 7 on tell nothing for a time after their
// header.
type lateBody struct {
	*upstream
	by time.Duration
}

// RoundTrip implements http.RoundTripper.
func (l lateBody) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.upstream.RoundTrip(r)
	if err != nil || r.URL.Query().Get("resourceVersion") != "7" {
		return resp, err
	}
	told := resp.Body
	in, out := io.Pipe()
	stop := context.AfterFunc(r.Context(), func() { _ = out.CloseWithError(r.Context().Err()) })
	go func() {
		defer stop()
		if clock.Sleep(r.Context(), l.by) {
			_, err := io.Copy(out, told)
			_ = out.CloseWithError(err)
		}
	}()
	resp.Body = struct {
		io.Reader
		io.Closer
	}{in, told}
	return resp, nil
}

// TestAStreamThatIsLeftInDoubt: whoever answers the watch after a stream that a failed probe, or a
// long silence, has put in doubt must show the same past.
func TestAStreamThatIsLeftInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		tells   string
		hold    time.Duration // of a probe
		after   time.Duration // is when the stream is left
		doubted bool
	}{
		"all is well":                         {tells: bookmark(9, ""), after: 2 * time.Minute},
		"a probe was not answered":            {hold: time.Hour, after: 50 * time.Second, doubted: true},
		"a probe was not, the stream goes on": {tells: bookmark(9, ""), hold: time.Hour, after: 50 * time.Second},
		"it was silent":                       {after: 2 * time.Minute, doubted: true},
		"it was silent for a while":           {after: 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, tells: tt.tells}
				u.watch = func(from uint64) []string {
					if from < 9 {
						return []string{inEvent("MODIFIED", itemB)}
					}
					return nil
				}
				begun, held := time.Now(), false // the first probe of the rhythm
				c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					if since := time.Since(begun); kindOf(r) == "probe" && since > time.Second && !held {
						held = true
						return tt.hold, nil
					}
					return 0, nil
				}}, tt.after)
				u.mu.Lock()
				u.revision = 30 // which the stream does not tell of
				u.mu.Unlock()
				for range 10 {
					c.requestProbe()
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if got := c.life.counts.stats(); (got.Resumes > 0) != tt.doubted || got.Restarts() > 0 {
					t.Errorf("the past had to be shown: %v, want %v; %+v", got.Resumes > 0, tt.doubted, got)
				}
			})
		})
	}
}

// TestResumedAfterALoad: where nothing has changed since the load, a watch is resumed once all names
// and revisions are the same. In another past, an object may still be there that was deleted before the
// load: no watch would show that.
func TestResumedAfterALoad(t *testing.T) {
	for name, tt := range map[string]struct {
		there []string
		loads int
	}{
		"the same":                {[]string{itemA, itemB}, 1},
		"one more":                {[]string{itemA, itemB, itemC(4)}, 2},
		"one that is newer":       {[]string{itemA, itemB, itemC(8)}, 2},
		"one less":                {[]string{itemB}, 2},
		"one of another revision": {[]string{strings.Replace(itemA, `"5"`, `"6"`, 1), itemB}, 2},
		"other bytes":             {[]string{itemA, strings.Replace(itemB, `"resourceVersion"`, `"uid":"1","resourceVersion"`, 1)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, exactly: func(string) []string { return tt.there }}
				u.watch = func(from uint64) []string {
					if u.watches == 1 {
						return []string{cut}
					}
					if from != 9 {
						t.Errorf("a watch from %d", from)
					}
					return nil
				}
				fed(t, u, 20*time.Second)
				if u.loads != tt.loads || u.compared != 1 {
					t.Errorf("loaded %d times, want %d; compared %d times", u.loads, tt.loads, u.compared)
				}
			})
		})
	}
}

// TestAPastThatWasReplaced: a state of before it must not be given, though its revision is known
// again.
func TestAPastThatWasReplaced(t *testing.T) {
	c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	before, absence := c.Latest(t.Context(), 0)
	if absence != reason.None || c.Standing().Doubt(before, time.Now()) != reason.None {
		t.Fatal(absence)
	}
	c.drop(reason.Warming)
	c.open(index.NewTree(false), 0, before.Revision-1, before.Frame, nil, c.probes.Next())
	expect.NoError(t, c.progress(before.Revision))
	if _, absence := c.Exact(t.Context(), before.Revision); absence != reason.None {
		t.Fatal(absence)
	}
	if got := c.Standing().Doubt(before, time.Now()); got != reason.Warming {
		t.Errorf("a state of a past that was dropped: %q", got)
	}
}

// TestEventsAfterTheEnd: a collection may be given up while its stream still tells something.
func TestEventsAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(*Collection){
		"retired": func(c *Collection) { c.retire(reason.Upstream) },
		"dropped": func(c *Collection) { c.drop(reason.Warming) },
		"closed":  func(c *Collection) { c.close() },
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{collection: c, comparisons: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
			end(c)
			for _, kind := range []string{wire.Added, wire.Modified, wire.Deleted} {
				ch := change{kind: kind, key: "ns/b", revision: 9}
				if again, err := c.repeats(ch.revision, &ch); again || err != nil {
					t.Errorf("%s: it is believed to be told again: %v", kind, err)
				}
				if err := c.apply(ch); err == nil {
					t.Errorf("%s: it is applied", kind)
				}
			}
			if err := f.compareAll(t.Context()); err == nil {
				t.Error("what is not known any more is compared")
			}
		})
	}
}

// TestStreamingListsThatFail: the state is loaded page by page.
func TestStreamingListsThatFail(t *testing.T) {
	status := func(code int) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":%d}`, code)
	}
	for name, tt := range map[string]struct {
		code  int
		body  string
		pages bool
	}{
		"422":          {http.StatusUnprocessableEntity, status(422), true},
		"500":          {http.StatusInternalServerError, status(500), true},
		"in the event": {http.StatusOK, `{"type":"ERROR","object":` + status(500) + "}\n", true},
		"504, also":    {http.StatusOK, `{"type":"ERROR","object":` + status(504) + "}\n", true},
		"429":          {http.StatusTooManyRequests, status(429), false},
		"403":          {http.StatusForbidden, status(403), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{revision: 9, watch: func(uint64) []string { return nil }}
				c := fedWith(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
					if kindOf(r) != "load" {
						return 0, nil
					}
					return 0, &http.Response{
						StatusCode: tt.code, Header: http.Header{"Content-Type": {media.JSONType}}, Body: io.NopCloser(strings.NewReader(tt.body)), Request: r,
					}
				}}, time.Minute, nil, Settings{Watches: true}, 90*time.Second)
				snap, absence := c.Latest(t.Context(), 0)
				if (absence == reason.None) != tt.pages {
					t.Errorf("the state is %q", absence)
				}
				// Watches from a revision can be followed, and streaming lists are the upstream's.
				if form := snap.WatchForm(); tt.pages && (form == nil || form.InitialEnd != nil) {
					t.Errorf("watches have the form %+v", form)
				}
			})
		})
	}
}

// TestWhatCannotFitIsAskedForEverLessOften.
func TestWhatCannotFitIsAskedForEverLessOften(t *testing.T) {
	f := &feed{collection: liveCollection(Limits{History: time.Minute, Staleness: time.Minute}), misfits: misfitBackoff()}
	last := time.Duration(0)
	for i := range 6 {
		_, pause := f.settle(errFull, nil)
		if pause < last || pause < unlikelyRetry || pause > 3*longestMisfit/2 {
			t.Errorf("pause %d: %v after %v", i, pause, last)
		}
		last = min(pause, longestMisfit)
	}
	if last < longestMisfit {
		t.Errorf("at last %v", last)
	}
}

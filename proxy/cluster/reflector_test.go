package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

const thingsPath = "/apis/x.io/v1/things"

// thing is an object: what is read of it is its holder, as of a Lease.
func thing(name, holder string, revision int) string {
	return fmt.Sprintf(`{"kind":"Thing","apiVersion":"x.io/v1","metadata":{"name":%q,"namespace":"n","resourceVersion":"%d",`+
		`"labels":{"a":"b"}},"spec":{"holderIdentity":%q,"other":[{"name":1}]},"data":{"spec":"x"}}`, name, revision, holder)
}

// told is what somebody was told.
type told struct {
	mu   sync.Mutex
	what []string
}

func (h *told) say(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.what = append(h.what, what)
}

func (h *told) invalidate(i snapshot.Invalidation) { h.say(invalidated(i)) }

// expect wants that just this was told since the last time, in any order.
func (h *told) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.what)
	slices.Sort(want)
	if diff := cmp.Diff(want, h.what); diff != "" {
		t.Errorf("%s: told (-want +got):\n%s", when, diff)
	}
	h.what = nil
}

// runThings runs a reflector of things in the bubble.
func runThings(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger, objects ...string) (*reflector[string], *told) {
	t.Helper()
	f.Collections[thingsPath] = &proxytest.FakeCollection{Kind: "ThingList", Objects: objects}
	from, err := newAPI(f.Config())
	expect.NoError(t, err)
	h := &told{}
	r := &reflector[string]{
		resource: "things",
		from:     from, path: thingsPath,
		read: readHolder,
		changed: func(c change[string]) {
			before, after, first := "none", "none", ""
			if c.before != nil {
				before = *c.before
			}
			if c.after != nil {
				after = *c.after
			}
			if c.first {
				first = ", at first"
			}
			h.say(fmt.Sprintf("%s %s to %s%s", c.name, before, after, first))
		},
		refusedWarning: "things may not be watched", needs: "list and watch on things", log: log,
	}
	proxytest.RunInBubble(t, r.run)
	return r, h
}

func (r *reflector[V]) current() bool {
	synctest.Wait()
	_, _, current := r.get("")
	return current
}

// TestReflectorTellsWhatChanges: of what is read, from a watch or from a list after a gap.
func TestReflectorTellsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		r, told := runThings(t, f, proxytest.DiscardLog(), thing("a", "1", 1), thing("b", "1", 1))
		reopen := func() { time.Sleep(6 * time.Second) }
		gap := func(objects ...string) func() {
			return func() {
				f.SetObjects(thingsPath, objects...)
				f.Cut(thingsPath)
				reopen()
			}
		}
		event := func(kind, object string) func() { return func() { f.Event(thingsPath, kind, object) } }
		for _, step := range []struct {
			name    string
			happens func()
			want    []string
		}{
			{
				name: "the first list", happens: func() {}, want: []string{"n/a none to 1, at first", "n/b none to 1, at first"},
			},
			{name: "what is not read", happens: event("MODIFIED", thing("a", "1", 2))},
			{name: "a bookmark", happens: event("BOOKMARK", thing("a", "2", 3))},
			{name: "a change", happens: event("MODIFIED", thing("a", "2", 4)), want: []string{"n/a 1 to 2"}},
			{name: "a new one", happens: event("ADDED", thing("c", "1", 5)), want: []string{"n/c none to 1"}},
			{name: "one goes", happens: event("DELETED", thing("c", "1", 6)), want: []string{"n/c 1 to none"}},
			{name: "a gap in which nothing changed", happens: gap(thing("b", "1", 1), thing("a", "2", 7))},
			{
				name:    "a gap",
				happens: gap(thing("a", "3", 8), thing("d", "1", 8)),
				want:    []string{"n/a 2 to 3", "n/b 1 to none", "n/d none to 1"},
			},
			{
				name:    "what cannot be read is a gap",
				happens: event("MODIFIED", strings.Replace(thing("a", "4", 9), `"4"`, "4", 1)),
			},
			{name: "in which nothing changed", happens: reopen},
			{
				name:    "an error is one, too",
				happens: event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`),
			},
			{name: "in which nothing changed either", happens: reopen},
			{name: "a change after it", happens: event("MODIFIED", thing("d", "2", 10)), want: []string{"n/d 1 to 2"}},
		} {
			step.happens()
			told.expect(t, step.name, step.want...)
		}
		expect.Same(t, map[string]string{"n/a": "3", "n/d": "2"}, r.known)
	})
}

// TestReflectorReadsPages: all of them, and no more at a time than one has.
func TestReflectorReadsPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		for n := range 3*pageSize + 1 {
			all = append(all, thing(strconv.Itoa(n), "1", 1))
		}
		f := proxytest.NewFakeAPI()
		r, _ := runThings(t, f, proxytest.DiscardLog(), all...)
		expect.Same(t, len(all), len(r.known))
		expect.Same(t, 4, f.CountRequests("list "+thingsPath))
	})
}

// TestLargeDefinitionsAreReadOneByOne: of a page of them, little more than one is in memory.
func TestLargeDefinitionsAreReadOneByOne(t *testing.T) {
	const size = 64 << 10
	large := strings.Replace(crd(1, "", established), `"served":true`, `"served":true,"schema":{"description":"`+strings.Repeat("x", size)+`"}`, 1)
	page := `{"kind":"List","items":[` + strings.Repeat(large+",", pageSize-1) + large + `],"metadata":{"resourceVersion":"7"}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var read []definition
	meta, err := readPage(json.NewDecoder(strings.NewReader(page)), func(o *object) { read = append(read, readDefinition(o)) })
	runtime.ReadMemStats(&after)
	expect.NoError(t, err)
	expect.Same(t, "7", meta.ResourceVersion)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*size || len(read) != pageSize {
		t.Errorf("%d definitions are read of %d bytes, and %d bytes allocated for them", len(read), len(page), took)
	}
}

// TestWhatIsNoList: an answer that is not whole, or not an API server's, says nothing of what there is.
func TestWhatIsNoList(t *testing.T) {
	for _, body := range []string{``, `{`, `{}`, `[]`, `"ok"`, `<html>`, `{"items":[]}`, `{"metadata":{"resourceVersion":"1"},"items":[{}`, `{"metadata":{"resourceVersion":"1"},"items":[{"spec":1}]}`} {
		if meta, err := readPage(json.NewDecoder(strings.NewReader(body)), func(*object) {}); err == nil {
			t.Errorf("%s is a list: %v", body, meta)
		}
	}
	meta, err := readPage(json.NewDecoder(strings.NewReader(`{"items":null,"metadata":{"resourceVersion":"1"}}`)), func(*object) {})
	expect.NoError(t, err)
	expect.Same(t, "1", meta.ResourceVersion)
}

// TestReflectorIsCurrent: what is known counts while a change would be heard of, and for a while after
// the watch has ended. That one stays open which tells nothing is no sign of that.
func TestReflectorIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		r, _ := runThings(t, f, proxytest.DiscardLog(), thing("a", "1", 1))
		f.StopBookmarks(thingsPath)
		expect := func(when string, current bool) {
			t.Helper()
			if got := r.current(); got != current || !r.ready() {
				t.Errorf("%s: current %v, ready %v", when, got, r.ready())
			}
		}
		bookmark := func() { f.Event(thingsPath, "BOOKMARK", thing("", "", 7)) }
		expect("listed", true)
		for range 60 {
			time.Sleep(time.Minute)
			bookmark()
			expect("with a bookmark every minute", true)
		}
		for range 3600 {
			time.Sleep(time.Second)
			expect("without a bookmark for an hour", true)
		}
		bookmark()
		f.Stall(thingsPath) // what comes in its place tells nothing either
		time.Sleep(maxSilence + pageTimeout - time.Nanosecond)
		expect("silent for a while", true)
		time.Sleep(time.Second)
		expect("silent for too long", false)
		f.Unstall(thingsPath)
		time.Sleep(6 * time.Second)
		expect("listed again", true)

		f.SetStatus(http.StatusServiceUnavailable, "list "+thingsPath, "watch "+thingsPath)
		f.Cut(thingsPath)
		time.Sleep(snapshot.Skew)
		expect("cut", true)
		time.Sleep(time.Second)
		expect("cut for a while", false)
		time.Sleep(time.Hour)
		if got := f.CountRequests("list " + thingsPath); got > 2000 {
			t.Errorf("asked %d times in an hour", got)
		}
		f.SetStatus(0, "list "+thingsPath, "watch "+thingsPath)
		time.Sleep(6 * time.Second)
		expect("back", true)
	})
}

// TestReflectorThatMayOnlyList: lists alone tell of no change. The log says once what to grant.
func TestReflectorThatMayOnlyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.SetStatus(http.StatusForbidden, "watch "+thingsPath)
		var logged logbuffer.Buffer
		r, _ := runThings(t, f, slog.New(slog.NewTextHandler(&logged, nil)), thing("a", "1", 1))
		if r.current() || !r.ready() || !r.isRefused() {
			t.Errorf("current %v, ready %v, refused %v", r.current(), r.ready(), r.isRefused())
		}
		time.Sleep(time.Hour)
		// Eight or nine times in the first five minutes, at doubling distances, then once in five.
		if got := f.CountRequests("list " + thingsPath); got < 17 || got > 21 {
			t.Errorf("asked %d times in an hour, want less and less often, down to once in five minutes", got)
		}
		if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, r.needs) {
			t.Errorf("want one line that says what to grant, got:\n%s", got)
		}
		f.SetStatus(0, "watch "+thingsPath)
		time.Sleep(2 * maxRefusedPause)
		if !r.current() || r.isRefused() {
			t.Error("not current, though it may watch")
		}
	})
}

// TestReflectorWarns: a failure that lasts is logged once. One that ends soon is not: an API server that restarts ends
// streams, and refuses everybody until it has read its roles.
func TestReflectorWarns(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		lasts  time.Duration
		want   string
	}{
		"ends early":                 {},
		"not permitted for a moment": {status: http.StatusForbidden, lasts: 30 * time.Second},
		"not permitted":              {status: http.StatusForbidden, lasts: 3 * time.Minute, want: "grant="},
		"another answer":             {status: http.StatusBadRequest, lasts: 3 * time.Minute, want: "could not be followed"},
		"nobody answers":             {status: http.StatusTooManyRequests, lasts: time.Hour}, // upstream.Health tells of that
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := proxytest.NewFakeAPI()
			var logged logbuffer.Buffer
			runThings(t, f, slog.New(slog.NewTextHandler(&logged, nil)), thing("a", "1", 1))
			for range 2 {
				time.Sleep(time.Hour)
				f.SetStatus(tt.status, "list "+thingsPath, "watch "+thingsPath)
				f.End(thingsPath)
				time.Sleep(tt.lasts)
				f.SetStatus(0, "list "+thingsPath, "watch "+thingsPath)
			}
			time.Sleep(time.Hour)
			lines := 0
			if tt.want != "" {
				lines = 2
			}
			if got := logged.String(); strings.Count(got, "\n") != lines || !strings.Contains(got, tt.want) {
				t.Errorf("want %d lines with %q, got:\n%s", lines, tt.want, got)
			}
		})
	}
}

// TestReflectorBeforeASuspension: what was heard before the machine stood still for an hour is as old as the wall
// clock says, which has counted that. The monotonic clock has not.
func TestReflectorBeforeASuspension(t *testing.T) {
	r := &reflector[string]{known: map[string]string{}}
	r.noteHeard()
	if _, _, current := r.get(""); !current {
		t.Error("what was heard just now is not current")
	}
	r.heardAt = proxytest.EarlierByTheWallClock(r.heardAt, time.Hour)
	if now := time.Now(); now.Sub(r.heardAt) > time.Minute || now.Round(0).Sub(r.heardAt.Round(0)) < time.Hour {
		t.Fatal("this is no suspension")
	}
	if _, _, current := r.get(""); current {
		t.Error("current since before the suspension")
	}
}

// TestReflectorGoesOn: after a watch that came to its timeout from where it ended, after anything else
// with a list.
func TestReflectorGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		lives   time.Duration // the first watch, which has told of revision 8
		end     func(f *proxytest.FakeAPI, path string)
		refused string // what is refused for a moment then
		lists   int
		watches []string // from which revision they go on
	}{
		"at its timeout":     {lives: 2*minWatchTime + time.Second, end: (*proxytest.FakeAPI).End, lists: 1, watches: []string{"1", "8"}},
		"too early":          {lives: time.Minute, end: (*proxytest.FakeAPI).End, lists: 2, watches: []string{"1", "1"}},
		"at once":            {end: (*proxytest.FakeAPI).End, lists: 2, watches: []string{"1", "1"}},
		"cut":                {lives: time.Minute, end: (*proxytest.FakeAPI).Cut, lists: 2, watches: []string{"1", "1"}},
		"then a list fails":  {lives: time.Minute, end: (*proxytest.FakeAPI).Cut, refused: "list ", lists: 3, watches: []string{"1", "1"}},
		"then a watch fails": {lives: 2*minWatchTime + time.Second, end: (*proxytest.FakeAPI).End, refused: "watch ", lists: 3, watches: []string{"1", "1"}},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := proxytest.NewFakeAPI()
			runThings(t, f, proxytest.DiscardLog(), thing("a", "1", 1))
			time.Sleep(tt.lives)
			f.Event(thingsPath, "BOOKMARK", thing("", "", 8))
			f.SetStatus(http.StatusServiceUnavailable, tt.refused+thingsPath)
			tt.end(f, thingsPath)
			time.Sleep(time.Second)
			f.SetStatus(0, tt.refused+thingsPath)
			time.Sleep(time.Minute)
			synctest.Wait()
			expect.Same(t, tt.lists, f.CountRequests("list "+thingsPath))
			expect.Same(t, tt.watches, f.Collections[thingsPath].Watched)
		})
	}
}

package cluster

import (
	"cmp"
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

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// reopenTime is enough for a reflector to list and watch again after a failure.
const reopenTime = 6 * time.Second

const thingsPath = "/apis/x.io/v1/things"

var things = inmemory.Kind{Path: thingsPath, APIVersion: "x.io/v1", Kind: "Thing"}

// thing returns an object with a holder, like a Lease. The reflectors in these tests keep only the holder (readHolder).
func thing(name, holder string) inmemory.Object {
	return inmemory.Object{
		Namespace: "n", Name: name, MoreMeta: `"labels":{"a":"b"},`,
		More: fmt.Sprintf(`,"spec":{"holderIdentity":%q,"other":[{"name":1}]},"data":{"spec":"x"}`, holder),
	}
}

// recorder records calls as texts.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) record(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *recorder) recordInvalidation(scope snapshot.Scope, cause reason.Reason) {
	r.record(fmt.Sprint(cause, scope))
}

// expect requires that exactly want was recorded since the last call, in any order.
func (r *recorder) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.calls)
	slices.Sort(want)
	if diff := gocmp.Diff(want, r.calls); diff != "" {
		t.Errorf("%s: recorded (-want +got):\n%s", when, diff)
	}
	r.calls = nil
}

// expectNothing requires that nothing was recorded since the last call.
func (r *recorder) expectNothing(t *testing.T, when string) {
	t.Helper()
	r.expect(t, when)
}

// runThings runs a reflector of things in the bubble. It returns the reflector and a recorder of its changes. A change of the
// holder from 1 to 2 is recorded as "n/a 1 to 2". An object of the first list is recorded as "n/a none to 1, at first".
func runThings(t *testing.T, upstream *inmemory.Hop, log *slog.Logger, objects ...inmemory.Object) (*reflector[string], *recorder) {
	t.Helper()
	upstream.Serve(things)
	for _, o := range objects {
		upstream.Put(things, o)
	}
	client, err := newAPI(upstream.Config())
	expect.NoError(t, err)
	recorded := &recorder{}
	r := &reflector[string]{
		resource: "things",
		from:     client, path: thingsPath,
		read: readHolder,
		onChange: func(c valueChange[string]) {
			none := "none"
			call := c.name + " " + *cmp.Or(c.before, &none) + " to " + *cmp.Or(c.after, &none)
			if c.first {
				call += ", at first"
			}
			recorded.record(call)
		},
		refusedWarning: "things may not be watched", needs: "list and watch on things", log: log,
	}
	proxytest.RunInBubble(t, r.run)
	return r, recorded
}

// isCurrent reports whether the reflector knows all changes of the resource. get says this about every name.
func (r *reflector[V]) isCurrent() bool {
	synctest.Wait()
	const anyName = ""
	return r.get(anyName).isCurrent
}

// TestReflectorChanges: a reflector calls onChange for an object if the part that it reads has changed, whether an event of the
// watch says so or the list after a gap.
func TestReflectorChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newUpstream(t)
		r, recorded := runThings(t, upstream, proxytest.DiscardLog(), thing("a", "1"), thing("b", "1"))
		reopen := func() { time.Sleep(reopenTime) }
		event := func(eventType watch.EventType, o inmemory.Object) func() {
			return func() { sendEvent(upstream, things, eventType, o) }
		}
		put := func(o inmemory.Object) func() { return event(writeEvent, o) }
		send := func(eventType, object string) func() {
			return func() { upstream.Send(thingsPath, inmemory.EventLine(eventType, object)) }
		}
		for _, step := range []struct {
			name string
			do   func()
			want []string
		}{
			{
				name: "the first list", do: func() {}, want: []string{"n/a none to 1, at first", "n/b none to 1, at first"},
			},
			{name: "a part changes that is not read", do: put(thing("a", "1"))},
			{name: "a bookmark", do: event(watch.Bookmark, thing("a", "2"))},
			{name: "a change", do: put(thing("a", "2")), want: []string{"n/a 1 to 2"}},
			{name: "a new object", do: put(thing("c", "1")), want: []string{"n/c none to 1"}},
			{name: "an object is deleted", do: event(watch.Deleted, thing("c", "")), want: []string{"n/c 1 to none"}},
			{
				name: "a gap in which nothing changed", do: func() {
					upstream.Cut(thingsPath)
					reopen()
				},
			},
			{
				name: "a gap in which things changed", do: func() {
					upstream.Cut(thingsPath)
					upstream.Put(things, thing("a", "3"))
					upstream.Delete(things, thing("b", ""))
					upstream.Put(things, thing("d", "1"))
					reopen()
				},
				want: []string{"n/a 2 to 3", "n/b 1 to none", "n/d none to 1"},
			},
			{
				name: "an object that cannot be read begins a gap",
				do:   send("MODIFIED", `{"metadata":{"name":"a","namespace":"n"},"spec":{"holderIdentity":4}}`),
			},
			{name: "nothing changed in the gap after it", do: reopen},
			{
				name: "an ERROR begins a gap",
				do:   send("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`),
			},
			{name: "nothing changed in the gap after the ERROR", do: reopen},
			{name: "a change after the gaps", do: put(thing("d", "2")), want: []string{"n/d 1 to 2"}},
		} {
			step.do()
			recorded.expect(t, step.name, step.want...)
		}
		expect.Same(t, map[string]string{"n/a": "3", "n/d": "2"}, r.known)
	})
}

// TestReflectorReadsPages: a reflector lists all pages, of pageSize objects each.
func TestReflectorReadsPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []inmemory.Object
		for n := range 3*pageSize + 1 {
			all = append(all, thing(strconv.Itoa(n), "1"))
		}
		upstream := newUpstream(t)
		r, _ := runThings(t, upstream, proxytest.DiscardLog(), all...)
		expect.Same(t, len(all), len(r.known))
		expect.Same(t, 3+1, upstream.Requests("list "+thingsPath))
	})
}

// TestLargeDefinitionsAreReadOneByOne: reading a page of large definitions allocates little more than one of them.
func TestLargeDefinitionsAreReadOneByOne(t *testing.T) {
	const size = 64 << 10
	large := `{"metadata":{"name":"a.x.io"}` + strings.Replace(crd{generation: 1, status: established}.object().More,
		`"served":true`, `"served":true,"schema":{"description":"`+strings.Repeat("x", size)+`"}`, 1) + "}"
	page := `{"kind":"List","items":[` + strings.Repeat(large+",", pageSize-1) + large + `],"metadata":{"resourceVersion":"7"}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var read []definition
	meta, err := readPage(json.NewDecoder(strings.NewReader(page)), func(o *object) { read = append(read, readDefinition(o)) })
	runtime.ReadMemStats(&after)
	expect.NoError(t, err)
	expect.Same(t, "7", meta.ResourceVersion)
	expect.Same(t, pageSize, len(read))
	const most = 8 * size // buffers grow by doubling
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("%d bytes were allocated for a page of %d bytes, want at most %d", got, len(page), most)
	}
}

// TestReadPageRefusesOtherAnswers: readPage returns an error for an answer that is not whole, or not a list of an API server. A
// list whose items are null is an empty list.
func TestReadPageRefusesOtherAnswers(t *testing.T) {
	for _, body := range []string{
		``, `{`, `{}`, `[]`, `"ok"`, `<html>`, `{"items":[]}`,
		`{"metadata":{"resourceVersion":"1"},"items":[{}`, `{"metadata":{"resourceVersion":"1"},"items":[{"spec":1}]}`,
	} {
		if meta, err := readPage(json.NewDecoder(strings.NewReader(body)), func(*object) {}); err == nil {
			t.Errorf("%q is read as a list with the metadata %+v, want an error", body, meta)
		}
	}
	meta, err := readPage(json.NewDecoder(strings.NewReader(`{"items":null,"metadata":{"resourceVersion":"1"}}`)), func(*object) {})
	expect.NoError(t, err)
	expect.Same(t, "1", meta.ResourceVersion)
}

// TestReflectorIsCurrent: a reflector is current while its watch is open and has sent something lately, if only a bookmark. It
// stays current for ten seconds (snapshot.Skew) after the watch has ended.
func TestReflectorIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newUpstream(t)
		r, _ := runThings(t, upstream, proxytest.DiscardLog(), thing("a", "1"))
		expectCurrent := func(when string, want bool) {
			t.Helper()
			if got := r.isCurrent(); got != want {
				t.Errorf("%s: current %t, want %t", when, got, want)
			}
			if !r.ready() {
				t.Errorf("%s: not ready", when)
			}
		}
		// With a bookmark every minute, one list is enough.
		expectCurrent("listed", true)
		for range 60 {
			time.Sleep(time.Minute)
			expectCurrent("with a bookmark every minute", true)
		}
		expect.Same(t, 1, upstream.Requests("list "+thingsPath))

		// Without bookmarks, the reflector lists again after each 80 s of silence (maxSilence), and the list is answered.
		upstream.Silence(thingsPath)
		for range int(time.Hour / time.Second) {
			time.Sleep(time.Second)
			expectCurrent("without a bookmark for an hour", true)
		}

		// A watch gets a last bookmark. It is silent from then on, and the list that follows is not answered.
		openedBefore := upstream.Requests("watch " + thingsPath)
		for upstream.Requests("watch "+thingsPath) == openedBefore {
			time.Sleep(time.Second)
		}
		sendEvent(upstream, things, watch.Bookmark, thing("", ""))
		upstream.Stall(thingsPath)
		time.Sleep(maxSilence + pageTimeout - time.Nanosecond)
		expectCurrent("silent for a while", true)
		time.Sleep(time.Second)
		expectCurrent("silent for too long", false)
		upstream.Unstall(thingsPath)
		time.Sleep(reopenTime)
		expectCurrent("listed again", true)

		// After a cut, neither lists nor watches are answered for an hour.
		upstream.SetStatus(http.StatusServiceUnavailable, "list "+thingsPath, "watch "+thingsPath)
		upstream.Cut(thingsPath)
		time.Sleep(snapshot.Skew)
		expectCurrent("cut", true)
		time.Sleep(time.Second)
		expectCurrent("cut for a while", false)
		time.Sleep(time.Hour)
		const most = int(time.Hour/(2*time.Second)) * 11 / 10 // pauses of two seconds or more, after some shorter ones
		if got := upstream.Requests("list " + thingsPath); got > most {
			t.Errorf("listed %d times in an hour, want at most %d", got, most)
		}
		upstream.SetStatus(usualAnswers, "list "+thingsPath, "watch "+thingsPath)
		time.Sleep(reopenTime)
		expectCurrent("back", true)
	})
}

// TestReflectorThatMayOnlyList: a reflector that may list, but not watch, is never current. It logs once what to grant. Its
// tries become rarer, down to one in five minutes (maxRefusedPause).
func TestReflectorThatMayOnlyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newUpstream(t)
		upstream.SetStatus(http.StatusForbidden, "watch "+thingsPath)
		var logged logbuffer.Buffer
		r, _ := runThings(t, upstream, slog.New(slog.NewTextHandler(&logged, nil)), thing("a", "1"))
		type state struct{ Current, Refused, Ready bool }
		stateOf := func() state { return state{Current: r.isCurrent(), Refused: r.isUnreadable(), Ready: r.ready()} }
		expect.Same(t, state{Refused: true, Ready: true}, stateOf())
		time.Sleep(time.Hour)
		// Eight or nine times in the first five minutes, at doubling distances, then once in five.
		if got := upstream.Requests("list " + thingsPath); got < 17 || got > 21 {
			t.Errorf("listed %d times in an hour, want 17 to 21", got)
		}
		expect.Same(t, 1, strings.Count(logged.String(), "\n"))
		expect.Says(t, logged.String(), "level=WARN", r.needs)
		upstream.SetStatus(usualAnswers, "watch "+thingsPath)
		time.Sleep(2 * maxRefusedPause)
		expect.Same(t, state{Current: true, Ready: true}, stateOf())
	})
}

// TestLastingFailuresAreLogged: a failure that lasts is logged once. A failure that ends soon is not logged: an API server that
// restarts ends streams, and refuses everybody until it has read its roles.
func TestLastingFailuresAreLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		status   int           // of the answers to lists and watches during a failure; 0: they are answered as usual
		duration time.Duration // from the end of the watch to the end of the failure
		wantText string        // in the line of each failure; "": nothing is logged
	}{
		"a watch ends early":         {},
		"not permitted for a moment": {status: http.StatusForbidden, duration: 30 * time.Second},
		"not permitted":              {status: http.StatusForbidden, duration: 3 * time.Minute, wantText: "grant="},
		"another answer":             {status: http.StatusBadRequest, duration: 3 * time.Minute, wantText: "could not be followed"},
		"nobody answers":             {status: http.StatusTooManyRequests, duration: time.Hour}, // upstream.Health reports that
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			upstream := newUpstream(t)
			var logged logbuffer.Buffer
			runThings(t, upstream, slog.New(slog.NewTextHandler(&logged, nil)), thing("a", "1"))
			const failures = 2
			for range failures {
				time.Sleep(time.Hour)
				upstream.SetStatus(tt.status, "list "+thingsPath, "watch "+thingsPath)
				upstream.End(thingsPath)
				time.Sleep(tt.duration)
				upstream.SetStatus(usualAnswers, "list "+thingsPath, "watch "+thingsPath)
			}
			time.Sleep(time.Hour)
			wantLines := 0
			if tt.wantText != "" {
				wantLines = failures
			}
			expect.Same(t, wantLines, strings.Count(logged.String(), "\n"))
			expect.Says(t, logged.String(), tt.wantText)
		})
	}
}

// TestReflectorAfterAWatch: after a watch that came to its timeout, a reflector watches again from the last revision, which
// came with a bookmark. After any other end it lists again.
func TestReflectorAfterAWatch(t *testing.T) {
	const lists, watches = "list " + thingsPath, "watch " + thingsPath
	// awaitTimeout waits until the first watch has come to its timeout, and the next one is requested.
	awaitTimeout := func(upstream *inmemory.Hop, _ string) {
		for upstream.Requests(watches) == 1 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for name, tt := range map[string]struct {
		end                    func(upstream *inmemory.Hop, path string) // how the first watch ends
		refused                string                                    // lists or watches, which fail for a second after the end
		wantLists, wantWatches int                                       // the numbers of requests in all
	}{
		"at its timeout":                    {end: awaitTimeout, wantLists: 1, wantWatches: 2},
		"at its timeout, and a watch fails": {end: awaitTimeout, refused: watches, wantLists: 3, wantWatches: 4},
		"before its timeout":                {end: (*inmemory.Hop).End, wantLists: 2, wantWatches: 2},
		"broken off":                        {end: (*inmemory.Hop).Cut, wantLists: 2, wantWatches: 2},
		"broken off, and a list fails":      {end: (*inmemory.Hop).Cut, refused: lists, wantLists: 3, wantWatches: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			upstream := newUpstream(t)
			// The first watch begins at the revision of the first list.
			runThings(t, upstream, proxytest.DiscardLog(), thing("a", "1"))
			wantRevisions := []string{strconv.FormatInt(upstream.Revision(), 10)}
			// Writes of another resource reach the watch only as bookmarks.
			putLease := func() (revision int64) { return upstream.Put(inmemory.Leases, inmemory.Object{Name: "a"}) }
			putLease()
			time.Sleep(2 * time.Minute) // until a bookmark has come
			newest := putLease()
			// The watch ends, and the reflector goes on.
			upstream.SetStatus(http.StatusServiceUnavailable, tt.refused)
			tt.end(upstream, thingsPath)
			time.Sleep(time.Second)
			upstream.SetStatus(usualAnswers, tt.refused)
			time.Sleep(time.Minute)
			synctest.Wait()
			// Each further watch begins at the newest revision, which the reflector has from a bookmark or a list.
			for len(wantRevisions) < tt.wantWatches {
				wantRevisions = append(wantRevisions, strconv.FormatInt(newest, 10))
			}
			expect.Same(t, tt.wantLists, upstream.Requests(lists))
			expect.Same(t, wantRevisions, upstream.Watched(thingsPath))
		})
	}
}

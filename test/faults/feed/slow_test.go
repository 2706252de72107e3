package feed

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// slowness is something that an API server with too much to do does to a feed, once. Nothing is
// wrong with what the feed knows.
type slowness struct {
	name string
	kind kind
	// fresh: the newest change is one that the API server can still tell. Otherwise a watch from
	// before it is told 410.
	fresh bool
	// breaks: the watch is broken, and has to be resumed. Otherwise there is no doubt, and it goes
	// on, or the next one begins where it has ended.
	breaks bool
	harm   func(t *testing.T, f *feeds)
}

// slownesses are of one kind each.
func slownesses() []slowness {
	return []slowness{
		{name: "all connections are cut", kind: widgets, breaks: true, harm: func(_ *testing.T, f *feeds) { f.hop.CutAll() }},
		{name: "a probe is held for 12 s", kind: limitRanges, harm: func(_ *testing.T, f *feeds) { f.holdProbes(12*time.Second, 0) }},
		// As long as priority and fairness let a request wait in a queue, and then refuse it.
		{name: "a probe is held for 16 s and refused", kind: podTemplates, harm: func(_ *testing.T, f *feeds) {
			f.holdProbes(16*time.Second, http.StatusTooManyRequests)
		}},
		// The stream stays; if it has told nothing since, the watch after it must show the past.
		{name: "a probe is never answered", kind: resourceQuotas, breaks: true, harm: func(_ *testing.T, f *feeds) { f.holdProbes(patience, 0) }},
		{name: "the watch beside the stream is told 429", kind: claims, harm: func(t *testing.T, f *feeds) {
			f.refuseWatches(t, http.StatusTooManyRequests)
		}},
		{name: "the watch beside the stream is told 503", kind: networkPolicies, harm: func(t *testing.T, f *feeds) {
			f.refuseWatches(t, http.StatusServiceUnavailable)
		}},
		{name: "the watch beside the stream is not answered", kind: revisions, harm: func(t *testing.T, f *feeds) { f.holdWatches(t, time.Minute) }},
		{name: "the watch beside the stream is answered after 6 s", kind: endpointSlices, harm: func(t *testing.T, f *feeds) { f.holdWatches(t, 6*time.Second) }},
		{name: "a resumed watch begins 7 s after its header", kind: deployments, fresh: true, breaks: true, harm: func(_ *testing.T, f *feeds) { f.holdLines() }},
	}
}

// TestSlowIsNotLost: what is known of a resource stays known, and nothing is loaded again, when its
// API server is slow, or refuses something, once. The objects are older than what the API server
// can tell in a watch.
func TestSlowIsNotLost(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	ns := c.namespace(t, "slow")
	var old []kind
	for _, s := range slownesses() {
		for i := range 3 {
			c.create(t, s.kind, ns, fmt.Sprintf("object-%d", i))
		}
		old = append(old, s.kind)
	}
	c.forgetChanges(t, ns, old)
	for _, s := range slownesses() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := &feeds{rig: newRig(t, c, rigOptions{}), kind: s.kind, namespace: ns}
			known := f.begin(t, s.fresh)
			loads, resumed := f.count(s.kind, fullLoad), f.resumes(t, s.kind)
			s.harm(t, f)
			f.onFault(nil)
			f.changeLines(nil)
			f.goesOn(t)
			resumed = f.resumes(t, s.kind) - resumed
			t.Logf("full lists: %d at the beginning, %d since then, for %d feeds; resumed: %d, lost: %v",
				loads, f.count(s.kind, fullLoad)-loads, len(f.accepts()), resumed, f.restarts(t, s.kind))
			if s.breaks && !s.fresh { // nothing can be told again that shows the past
				if n := f.count(s.kind, fullLoad) - loads; n > len(f.accepts()) {
					t.Errorf("loaded %d times again", n)
				}
				return
			}
			if n := f.count(s.kind, fullLoad) - loads; n != 0 {
				t.Errorf("loaded %d times again", n)
			}
			if lost := f.restarts(t, s.kind); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
			if !s.breaks && resumed > 0 {
				t.Errorf("watches were resumed %d times as if they had been broken", resumed)
			}
			f.stillKnown(t, known)
		})
	}
}

// forgetChanges makes the API server forget when these kinds were written: it is restarted, and its
// watch caches begin with what is there then.
func (c *cluster) forgetChanges(t *testing.T, namespace string, kinds []kind) {
	t.Helper()
	c.create(t, configMaps, namespace, "later-than-all")
	expect.NoError(t, c.StopAPIServer())
	expect.NoError(t, c.StartAPIServer(t.Context()))
	for _, k := range kinds {
		err := poll.Retry(t.Context(), k.Plural+" to be older than what can be told", func() error {
			newest, err := c.newest(t, k)
			if err != nil {
				return err
			}
			a, err := c.direct.Get(t.Context(), k.Path("")+"?timeoutSeconds=1&watch=true&resourceVersion="+before(newest))
			if err == nil && !bytes.Contains(a.Body, []byte(`"code":410`)) {
				err = fmt.Errorf("a watch from before %d: %s", newest, a)
			}
			return err
		})
		expect.NoError(t, err)
	}
}

// feeds are those of one kind, in all forms in which these tests want it.
type feeds struct {
	*rig
	kind      kind
	namespace string
	turn      int // of writes elsewhere
}

// accepts are the forms: custom resources have no protobuf.
func (f *feeds) accepts() []string {
	if strings.Contains(f.kind.Group(), "feed.test") {
		return []string{ask.JSON}
	}
	return []string{ask.JSON, protobufType}
}

// formOf is what accepts has of a request.
func formOf(req *http.Request) string {
	if strings.Contains(req.Header.Get("Accept"), protobufType) {
		return protobufType
	}
	return ask.JSON
}

// begin loads all forms, and returns revisions that are known of each.
func (f *feeds) begin(t *testing.T, fresh bool) (known []string) {
	t.Helper()
	for _, accept := range f.accepts() {
		f.fromMemory(t, accept, f.kind.Path("")+"?resourceVersion=0")
	}
	if fresh {
		for i := range 3 {
			known = append(known, f.touch(t, f.kind, f.namespace, "object-1", fmt.Sprint(i)))
		}
	}
	for range 2 {
		known = append(known, f.goesOn(t))
	}
	f.stillKnown(t, known)
	return known
}

// goesOn writes elsewhere, and waits until the feeds have come to that revision.
func (f *feeds) goesOn(t *testing.T) (revision string) {
	t.Helper()
	revision = f.elsewhere(t)
	for _, accept := range f.accepts() {
		f.fromMemory(t, accept, f.kind.Path("")+"?"+notOlderThan(revision).Encode())
	}
	return revision
}

// elsewhere writes something else.
func (f *feeds) elsewhere(t *testing.T) (revision string) {
	t.Helper()
	f.turn++
	return f.create(t, configMaps, f.namespace, fmt.Sprintf("beside-%s-%d", f.kind.Plural, f.turn))
}

// stillKnown demands answers from memory with the states of these revisions.
func (f *feeds) stillKnown(t *testing.T, revisions []string) {
	t.Helper()
	for _, accept := range f.accepts() {
		var lost []string
		for _, revision := range revisions {
			a, err := f.admin.GetAs(t.Context(), accept, f.kind.Path("")+"?"+exactly(revision).Encode())
			expect.NoError(t, err)
			if a.Source() != hitExact {
				lost = append(lost, revision+": "+a.Source())
				continue
			}
			f.same(t, accept, f.kind.Path(""), exactly(revision))
		}
		if len(lost) > 0 {
			t.Errorf("of %d revisions that were known %d are lost, as %s: %s", len(revisions), len(lost), accept, strings.Join(lost, ", "))
		}
	}
}

// follows reports whether a request is a watch by which a feed follows its resource.
func (f *feeds) follows(req *http.Request) bool {
	q := req.URL.Query()
	return of(req, f.kind) && anyWatch(q) && !q.Has("fieldSelector") && !q.Has("sendInitialEvents")
}

// short reports whether a watch is one that is there for the bookmark at its end.
func short(q url.Values) bool { return q.Get("timeoutSeconds") == "3" }

// each counts by form. Safe for concurrent use.
type each struct {
	mu sync.Mutex
	n  map[string]int
}

// next counts a request, and returns how many of its form there were before it.
func (e *each) next(req *http.Request) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n == nil {
		e.n = map[string]int{}
	}
	e.n[formOf(req)]++
	return e.n[formOf(req)] - 1
}

// seen returns an error if not every form was counted.
func (e *each) seen(accepts ...string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, accept := range accepts {
		if e.n[accept] == 0 {
			return fmt.Errorf("none as %s", accept)
		}
	}
	return nil
}

// holdProbes holds the next probe of each feed for a time, and lets it pass then or refuses it. It
// waits until they are answered, or given up.
func (f *feeds) holdProbes(d time.Duration, code int) {
	var seen, over each
	f.onFault(func(w http.ResponseWriter, req *http.Request) bool {
		if !of(req, f.kind) || !isProbe(req.URL.Query()) || seen.next(req) > 0 {
			return false
		}
		defer over.next(req)
		return poll.Pause(req.Context(), d) && code != 0 && hop.Refuse(w, code)
	})
	f.until("a probe of each feed to be over", func() error { return over.seen(f.accepts()...) })
}

// refuseWatches refuses, once for each feed, the short watch that is opened beside its stream.
func (f *feeds) refuseWatches(t *testing.T, code int) {
	var refused each
	f.onFault(func(w http.ResponseWriter, req *http.Request) bool {
		return f.follows(req) && short(req.URL.Query()) && refused.next(req) == 0 && hop.Refuse(w, code)
	})
	f.opensWatches(t, func() error { return refused.seen(f.accepts()...) })
}

// opensWatches writes elsewhere and asks for that, upon which feeds open short watches beside their
// streams, until there is no error.
func (f *feeds) opensWatches(t *testing.T, done func() error) {
	t.Helper()
	revision := ""
	f.until("watches beside the streams", func() error {
		if err := done(); err == nil {
			return nil
		}
		if f.turn%10 == 0 || revision == "" {
			revision = f.elsewhere(t)
		}
		for _, accept := range f.accepts() {
			if _, err := f.admin.GetAs(t.Context(), accept, f.kind.Path("")+"?"+notOlderThan(revision).Encode()); err != nil {
				return err
			}
		}
		f.turn++
		poll.Pause(t.Context(), 10*pollEvery)
		return done()
	})
}

// holdWatches answers the first short watch of each feed so much later, or not at all if the feed
// does not wait for so long.
func (f *feeds) holdWatches(t *testing.T, by time.Duration) {
	var seen, over each
	f.onFault(func(_ http.ResponseWriter, req *http.Request) bool {
		if f.follows(req) && short(req.URL.Query()) && seen.next(req) == 0 {
			poll.Pause(req.Context(), by)
			over.next(req)
		}
		return false
	})
	f.opensWatches(t, func() error { return over.seen(f.accepts()...) })
}

// holdLines cuts all connections, and holds back the first event of each watch that is opened
// again, after its header has gone on.
func (f *feeds) holdLines() {
	var begun, told each
	var mu sync.Mutex
	seen := map[*http.Request]bool{}
	f.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		mu.Lock()
		first := f.follows(req) && !seen[req]
		seen[req] = true
		mu.Unlock()
		if first {
			begun.next(req)
			poll.Pause(req.Context(), 7*time.Second)
			told.next(req)
		}
		return line, nil
	})
	f.hop.CutAll()
	f.until("the first event of each watch", func() error { return errors.Join(begun.seen(f.accepts()...), told.seen(f.accepts()...)) })
}

// newest is the revision of the newest object of a kind.
func (c *cluster) newest(t *testing.T, k kind) (uint64, error) {
	t.Helper()
	a, err := c.direct.Get(t.Context(), k.Path(""))
	if err != nil {
		return 0, err
	}
	l, err := ask.ReadList(ask.JSON, a.Body)
	if err != nil {
		return 0, err
	}
	newest := uint64(0)
	for _, o := range l.Objects {
		revision, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
		if err != nil {
			return 0, err
		}
		newest = max(newest, revision)
	}
	return newest, nil
}

// before is the revision before another.
func before(revision uint64) string { return strconv.FormatUint(revision-1, 10) }

// restarts says how often what is known of a kind was lost, by cause, as the metrics tell it.
func (r *rig) restarts(t *testing.T, k kind) map[string]int {
	t.Helper()
	lost := map[string]int{}
	for _, s := range r.counted(t, k, "listproxy_feed_restarts_total") {
		lost[s.Labels["cause"]] += int(s.Value)
	}
	return lost
}

// resumes says how often watches of a kind were resumed after a break: they begin with the load.
func (r *rig) resumes(t *testing.T, k kind) (n int) {
	t.Helper()
	for _, s := range r.counted(t, k, "listproxy_feed_requests_total") {
		if s.Labels["request"] == "watch" {
			n += int(s.Value)
		}
	}
	return n
}

// counted is what a counter says of a kind, where it is not 0.
func (r *rig) counted(t *testing.T, k kind, name string) []soak.Series {
	t.Helper()
	all, err := soak.Read(t.Context(), http.DefaultClient, r.proxy.AdminURL()+"/metrics", name)
	expect.NoError(t, err)
	return slices.DeleteFunc(all, func(s soak.Series) bool {
		plural, _, _ := strings.Cut(s.Labels["resource"], ".")
		return plural != k.Plural || s.Value == 0
	})
}

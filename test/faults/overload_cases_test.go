package faults

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

var overloadFor = flag.Duration("faults.overload", 0,
	"how long the API server has too much to do; 0: ten minutes with -faults.all, else forty seconds")

const (
	// answeredLate is how late an API server with too much to do answers.
	answeredLate = 20 * time.Second
	// knownBefore is how many revisions of each collection are asked for before the fault and after
	// it.
	knownBefore = 20
)

// quotas and idlers are written before a case begins, and not while it lasts.
var (
	quotas = kind{APIVersion: "v1", Name: "ResourceQuota", Plural: "resourcequotas"}
	idlers = kind{APIVersion: "idle.test/v1", Name: "Idler", Plural: "idlers"}
)

// quietCollections are theirs.
func quietCollections() []collection {
	return load.Collections(quotas, idlers)
}

// overloadCases are those of an API server that has too much to do: it answers nothing that
// listproxy asks for by itself as it should. Watches that have been answered go on. What has not
// changed must not be loaded again for that, and no revision may be lost.
func overloadCases() []faultCase {
	return []faultCase{
		overloadCase("slow", slow, late), overloadCase("refusing", refusing, half),
		// For less long, where quiet collections are of no interest: the soak has these, too.
		{name: "answered_late", stage: quiet, fault: func(s *scene) time.Time {
			return s.overloaded(late, func() { poll.Pause(s.Context(), max(answeredLate+load.Bound, *duration)) })
		}},
		{name: "half_refused", stage: quiet, fault: func(s *scene) time.Time { return s.overloaded(half, s.hold) }},
	}
}

// late answers, after a time.
func late(_ http.ResponseWriter, r *http.Request) bool {
	poll.Pause(r.Context(), answeredLate)
	return false
}

// half refuses half of all.
func half(w http.ResponseWriter, _ *http.Request) bool {
	return rand.IntN(2) == 0 && hop.Refuse(w, http.StatusTooManyRequests)
}

// overloaded does something while what listproxy asks for by itself is treated so, and returns when
// that was over.
func (s *scene) overloaded(treat func(http.ResponseWriter, *http.Request) bool, do func()) time.Time {
	s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool { return s.byItself(r) && treat(w, r) })
	do()
	s.hop.OnRequest(nil)
	return time.Now()
}

// byItself reports whether listproxy asks for something with its own credentials, and for no
// caller. (It asks as the caller what the caller may.)
func (s *scene) byItself(r *http.Request) bool {
	return r.Header.Get("Authorization") == "Bearer "+s.plane.Token(controlplane.Feed)
}

func overloadCase(name string, on *stage, treat func(http.ResponseWriter, *http.Request) bool) faultCase {
	o := &overload{}
	return faultCase{
		name: name, stage: on, args: []string{"--history-window", "1h", "--idle-timeout", "0"},
		before: func(s *scene) { o.prepare(s, name) },
		fault: func(s *scene) time.Time {
			o.begin()
			s.breaks()
			o.treat(treat)
			poll.Pause(s.Context(), overloadLasts())
			o.treat(nil)
			return time.Now()
		},
		after: o.end,
	}
}

func overloadLasts() time.Duration {
	switch {
	case *overloadFor > 0:
		return *overloadFor
	case *all:
		return 10 * time.Minute
	}
	return 2 * answeredLate // what is asked for at first is answered late, and what follows from that, too
}

// overload is one such case.
type overload struct {
	s    *scene
	name string
	// known are revisions of which listproxy knew the state before the fault.
	known  map[collection][]uint64
	before counts
	// ending ends who asks for what is quiet.
	ending func()

	mu     sync.Mutex
	how    func(http.ResponseWriter, *http.Request) bool // nil: as ever
	loaded map[collection]int                            // how often each was asked for as a whole
}

// counts are what has been seen of collections until a moment.
type counts struct {
	lists map[collection]int // whole ones that were asked for
	lost  map[collection]map[string]int
}

// prepare writes what is to be quiet, and makes the API server forget when.
func (o *overload) prepare(s *scene, name string) {
	o.s, o.name, o.known, o.loaded = s, name, map[collection][]uint64{}, map[collection]int{}
	ctx := s.Context()
	s.must(s.create(ctx, kinds.Definitions, idlers.Definition(kinds.Version(fieldsOf{"type": "object"}))))
	for _, k := range []kind{quotas, idlers} {
		for i := range names {
			s.must(s.create(ctx, k.Path(s.namespaces[0]), k.Object(load.NameOf(i))))
		}
	}
	_, err := s.touch(ctx, configMaps, s.namespaces[0]) // the newest revision is another one
	s.must(err)
	s.must(s.plane.StopAPIServer())
	s.must(s.plane.StartAPIServer(ctx))
	for _, k := range []kind{quotas, idlers} {
		s.must(poll.Retry(ctx, k.Plural+" to be older than what can be told", func() error { return s.untold(ctx, k) }))
	}
	s.hop.OnRequest(o.pass)
}

// untold returns an error if the API server can tell the newest change of a kind.
func (s *scene) untold(ctx context.Context, k kind) error {
	l, err := load.Read(ctx, s.direct, k.Path(""))
	if err != nil {
		return err
	}
	newest := uint64(0)
	for _, object := range l.Objects {
		revision, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
		if err != nil {
			return err
		}
		newest = max(newest, revision)
	}
	a, err := s.direct.Get(ctx, k.Path("")+"?timeoutSeconds=1&watch=true&resourceVersion="+strconv.FormatUint(newest-1, 10))
	if err == nil && !bytes.Contains(a.Body, []byte(`"code":410`)) {
		err = fmt.Errorf("a watch from before %d: %s", newest, a)
	}
	return err
}

// pass counts whole lists that listproxy asks for by itself, and treats all that it asks for by
// itself as the fault has it.
func (o *overload) pass(w http.ResponseWriter, r *http.Request) bool {
	if !o.s.byItself(r) {
		return false
	}
	o.mu.Lock()
	how := o.how
	if c, ok := collectionOf(r); ok && whole(r.URL.Query()) {
		o.loaded[c]++
	}
	o.mu.Unlock()
	return how != nil && how(w, r)
}

func (o *overload) treat(how func(http.ResponseWriter, *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.how = how
}

// whole reports whether a list is of all objects as they are now: a streaming one, or its first
// page. Self-checks ask for the state at a revision, and a feed for some first objects, or one by
// its name, to learn or to probe.
func whole(q url.Values) bool {
	if q.Get("sendInitialEvents") == "true" {
		return true
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	return err == nil && limit > 20 && !q.Has("continue") && !q.Has("resourceVersion") && !q.Has("fieldSelector")
}

// collectionOf is the collection that a request is about.
func collectionOf(r *http.Request) (collection, bool) {
	for _, c := range append(collections(), quietCollections()...) {
		if r.URL.Path == c.Kind.Path("") && c.Form == formOf(r.Header.Get("Accept")) {
			return c, true
		}
	}
	return collection{}, false
}

// begin waits until all is loaded, asks for what is quiet from then on, and notes which revisions
// are known.
func (o *overload) begin() {
	s := o.s
	s.Helper()
	all := append(collections(), quietCollections()...)
	for _, c := range all {
		s.must(poll.Retry(s.Context(), "all that is known, from memory", func() error {
			l, err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.AnyVersion})
			if err != nil {
				return err
			}
			return o.notes(c, l.Revision)
		}))
	}
	ctx, cancel := context.WithCancel(s.Context())
	var asking sync.WaitGroup
	asking.Go(func() { s.askQuiet(ctx) })
	o.ending = func() {
		cancel()
		asking.Wait()
	}
	s.Cleanup(o.ending)
	s.calm("of quiet collections, too")
	for _, c := range all {
		s.must(poll.Retry(s.Context(), "enough revisions that are known", func() error {
			if len(o.known[c]) >= knownBefore {
				return nil
			}
			// What came before the collection was loaded is not known.
			return errors.Join(o.notes(c, s.Ledger.Recent()), errors.New("not yet"))
		}))
	}
	o.before = o.counted()
}

// notes remembers a revision if its state is known.
func (o *overload) notes(c collection, revision uint64) error {
	if slices.Contains(o.known[c], revision) {
		return nil
	}
	_, err := o.s.fromMemory(o.s.Context(), question{Collection: c, Query: ask.Exactly(revision)})
	if err == nil {
		o.known[c] = append(o.known[c], revision)
	}
	return err
}

// askQuiet asks for what is quiet until ctx ends.
func (s *scene) askQuiet(ctx context.Context) {
	for poll.Pause(ctx, 2*askEvery) {
		all := quietCollections()
		q := question{Collection: all[rand.IntN(len(all))], Query: ask.AnyVersion}
		if some := s.Ledger.Recent(); some != 0 && rand.IntN(2) == 0 {
			q.Query = ask.Exactly(some)
		}
		s.put(ctx, q, true, 0)
	}
}

// counted is what has been seen until now.
func (o *overload) counted() counts {
	o.s.Helper()
	lost, err := lostUntilNow(o.s)
	o.s.must(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	return counts{maps.Clone(o.loaded), lost}
}

// end says what the fault has cost.
func (o *overload) end(s *scene) {
	s.Helper()
	now, err := s.touch(s.Context(), configMaps, s.namespaces[0])
	s.must(err)
	for _, c := range quietCollections() {
		s.must(poll.Retry(s.Context(), "a quiet collection after the fault", func() error {
			_, err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.NotOlderThan(now)})
			return err
		}))
	}
	o.ending()
	if n, why := s.Tally.Lost(); n > 0 {
		s.Logf("%d requests were not answered: %v", n, why)
	}
	after := o.counted()
	for i, c := range append(collections(), quietCollections()...) {
		cost := toll{
			name: o.name, collection: c, quiet: i >= len(collections()),
			atFirst: o.before.lists[c], since: after.lists[c] - o.before.lists[c], lost: less(after.lost[c], o.before.lost[c]),
		}
		for _, revision := range o.known[c] {
			cost.asked++
			switch err := o.stillKnown(c, revision); {
			case err == nil:
				cost.known++
			case cost.gone == nil:
				cost.gone = err
			}
		}
		for _, wrong := range cost.wrong() {
			s.Error(wrong)
		}
		tolls.add(cost)
	}
}

// stillKnown asks for a revision that was known, which must come from memory, and be right.
func (o *overload) stillKnown(c collection, revision uint64) error {
	s := o.s
	q := question{Collection: c, Query: ask.Exactly(revision)}
	asked := time.Now()
	a, err := s.via.GetAs(s.Context(), c.Form.Accept, q.Target())
	if err != nil {
		return err
	}
	if a.Code != http.StatusOK || !a.FromMemory() {
		return fmt.Errorf("%d: %s", a.Code, a.Source())
	}
	l, err := c.Form.Read(a.Body)
	if err == nil {
		s.Oracle.Add(load.Witness{Question: q, Answer: a, List: l, Asked: asked, Answered: time.Now()})
	}
	return err
}

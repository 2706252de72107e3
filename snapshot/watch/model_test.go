package watch

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
)

// TestModel: whatever happens to a broadcaster, each client gets the events after its revision that its query selects, in
// order. It gets nothing new while IsDefined is false, and everything soon after. It gets the bookmarks that it asked for, each
// after all events up to the bookmark's revision. Its watch ends only for a reason that the model knows.
func TestModel(t *testing.T) {
	const seeds, steps = 24, 150
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, seed)
				m := &model{fakeCluster: c, retainedAfter: c.span.To}
				for range steps {
					m.step()
				}
				m.settle(0)
				m.finish()
			})
		})
	}
}

// model knows what a broadcaster must do, without looking into it. A doubt is a time in which IsDefined is false.
type model struct {
	*fakeCluster
	doubtBegan    time.Time // when the last doubt began
	confirmed     uint64    // the cluster's revision when the last doubt began
	lastLongDoubt time.Time // when a doubt was last seen that has lasted for so long that watches end
	retainedAfter uint64    // no change after this revision is forgotten
	followers     []*follower
	endings       []Ending // the endings with which the broadcaster was ended
	aborted       bool     // Abort was called
}

// follower is a client, and what it must have got.
type follower struct {
	*watchClient
	name    string // of its query
	options Options
	begunAt time.Time
	asleep  bool // the client has taken everything, and takes no more until it is woken
	// extraBookmarks is the number of bookmarks that readUndispatched has made due.
	extraBookmarks int
	// undispatchedTo is the newest revision when the client last took changes before they were dispatched. Dispatching these
	// changes wakes the client again.
	undispatchedTo uint64
	want           []wantEvent // the events that the client must get for the first changes of the log
	wantLogged     int         // the number of these changes
	// The numbers of events and bookmarks that were checked already.
	checkedEvents, checkedBookmarks int
}

// step does one thing at random. A weight says how often, compared with others.
func (m *model) step() {
	steps := []struct {
		weight int
		run    func()
	}{
		{20, m.write},
		{16, m.begin},
		{12, m.readSome},
		{4, m.trimSome},
		{4, m.forget},
		{4, m.beginOrEndDoubt},
		{4, m.pause},
		{4, m.loseOldestClient},
		{3, m.readUndispatched},
		{1, m.load},
		{2, func() { m.settle(0) }},
		{2, func() { m.settle(bookmarkInterval + bookmarkJitter) }},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	chosen := m.random.IntN(total)
	for _, s := range steps {
		if chosen < s.weight {
			s.run()
			break
		}
		chosen -= s.weight
	}
	if m.flipCoin() {
		synctest.Wait()
		m.checkWakes()
	}
	m.closeEnded()
}

func (m *model) flipCoin() bool { return m.random.IntN(2) == 0 }

// readSome lets some clients read.
func (m *model) readSome() {
	some := slices.DeleteFunc(m.open(), func(*follower) bool { return m.flipCoin() })
	m.read(1+m.random.IntN(3), some...)
}

// pause lets some time pass.
func (m *model) pause() {
	pauses := []time.Duration{0, holdPollInterval / 2, time.Second, holdTimeout / 2, time.Minute}
	time.Sleep(pauses[m.random.IntN(len(pauses))])
}

// load loads the newest state, which has no history.
func (m *model) load() {
	m.renew()
	m.confirmed, m.retainedAfter = m.span.To, m.span.To
}

// loseOldestClient lets the client of the oldest open watch go away.
func (m *model) loseOldestClient() {
	if all := m.open(); len(all) > 0 {
		all[0].end = EndGone
	}
}

// checkWakes checks that no client was woken for a change that does not concern it.
func (m *model) checkWakes() {
	for _, w := range m.open() {
		due := w.firstDue.Load()
		hasBegun := w.delivered > w.after
		mayBeAnyChange := due <= w.undispatchedTo
		if !w.asleep || !hasBegun || mayBeAnyChange {
			continue
		}
		i := slices.IndexFunc(m.log, func(l logged) bool { return l.revision == due })
		if i >= 0 && !w.isConcerned(m.log[i]) {
			m.t.Fatalf("a watch of %s is woken for the change at %d", w.name, due)
		}
	}
}

// isConcerned reports whether a change concerns a client: its query selects the object before or after the change.
func (w *follower) isConcerned(l logged) bool {
	return selects(w.query, l.Before) || !l.Deleted && selects(w.query, l.After)
}

// closeEnded closes the watches that have ended.
func (m *model) closeEnded() {
	m.retainedAfter = max(m.retainedAfter, m.span.Versions.Forgotten())
	for _, w := range m.followers {
		if w.end != "" {
			w.Close(w.end)
		}
	}
}

// open returns the clients whose watches have not ended.
func (m *model) open() []*follower {
	return slices.DeleteFunc(slices.Clone(m.followers), func(w *follower) bool { return w.end != "" })
}

// begin begins a watch after a random revision of the history. No watch may begin before or after the history.
func (m *model) begin() {
	synctest.Wait()
	all := queries(m.t)
	names := slices.Sorted(maps.Keys(all))
	name := names[m.random.IntN(len(names))]
	for _, after := range []uint64{m.retainedAfter - 1, m.span.To + 1} {
		filter := index.NewFilter(m.broadcaster.Form().Envelope, all[name])
		w := m.broadcaster.Watch(Options{After: after, Filter: filter, Timeout: time.Hour, IsDefined: m.definition.isDefined})
		if w != nil {
			m.t.Fatalf("a watch begins after %d, want only after %d to %d", after, m.retainedAfter, m.span.To)
		}
	}
	o := Options{
		After:     m.retainedAfter + m.random.Uint64N(m.span.To-m.retainedAfter+1),
		Bookmarks: m.flipCoin(),
		Timeout:   []time.Duration{24 * time.Hour, 150 * time.Second}[m.random.IntN(2)],
	}
	m.followers = append(m.followers, &follower{watchClient: m.watch(all[name], o), name: name, options: o, begunAt: time.Now()})
}

// forget forgets the history before the newest version.
func (m *model) forget() {
	m.span.To += m.random.Uint64N(10)
	m.span.From = m.span.To
	m.span.Versions.Forget(m.span.Versions.Len() - 1)
	m.broadcaster.Publish(m.span)
}

// trimSome forgets all but a few versions.
func (m *model) trimSome() { m.trim(1 + m.random.IntN(10)) }

// beginOrEndDoubt sets at random whether IsDefined is false.
func (m *model) beginOrEndDoubt() { m.setDoubtful(m.flipCoin()) }

// setDoubtful sets whether IsDefined is false.
func (m *model) setDoubtful(doubtful bool) {
	m.noteLongDoubt()
	wasDoubtful := m.definition.doubtful.Swap(doubtful)
	if doubtful && !wasDoubtful {
		m.confirmed, m.doubtBegan = m.span.To, time.Now()
	}
}

// noteLongDoubt records that a doubt has lasted for so long that watches end.
func (m *model) noteLongDoubt() {
	if m.definition.doubtful.Load() && time.Since(m.doubtBegan) >= holdTimeout {
		m.lastLongDoubt = time.Now()
	}
}

// deliverableTo returns the revision up to which clients may get changes.
func (m *model) deliverableTo() uint64 {
	if m.definition.doubtful.Load() {
		return m.confirmed
	}
	return m.span.To
}

// readUndispatched lets clients read, some because of a bookmark, while Publish has published a change and not dispatched it yet.
func (m *model) readUndispatched() {
	synctest.Wait()
	broadcaster := m.broadcaster
	m.broadcaster = NewBroadcaster(*broadcaster.Form(), m.span, &Counts{}, &Pacer{}) // nobody watches this one
	m.write()
	m.broadcaster = broadcaster
	published := m.span
	broadcaster.published.Store(&published) // the first half of Publish; the second follows below
	for _, w := range m.open() {
		if w.phase.Load() != phaseOpen || m.flipCoin() {
			continue
		}
		if w.options.Bookmarks {
			w.bookmarkDue.Store(true)
			w.wakeUp()
			w.extraBookmarks++
		}
		w.undispatchedTo = m.span.To
		m.read(1, w)
	}
	broadcaster.Publish(m.span)
}

// read lets clients take events at the same time, each a number of times. A client that got nothing the last time takes no
// events until it is woken.
func (m *model) read(times int, some ...*follower) {
	var reading sync.WaitGroup
	for _, w := range some {
		reading.Go(func() {
			for n := 0; n < times && w.end == "" && (!w.asleep || len(w.wake) > 0); n++ {
				if len(w.wake) > 0 {
					w.Wait(m.t.Context())
				}
				w.asleep = !w.receive(m.t.Context()) && w.heldSince.IsZero()
			}
		})
	}
	reading.Wait()
	for _, w := range some {
		m.check(w)
	}
}

// check compares what a client has got since the last check with what it must get.
func (m *model) check(w *follower) {
	m.noteLongDoubt()
	w.want = append(w.want, wantEvents(m.log[w.wantLogged:], w.query, w.after)...)
	w.wantLogged = len(m.log)
	fail := func(format string, a ...any) {
		m.t.Helper()
		m.t.Fatalf("a watch of %s after %d, where %d of %d may be delivered: %s",
			w.name, w.after, m.deliverableTo(), m.span.To, fmt.Sprintf(format, a...))
	}
	m.checkEvents(w, fail)
	m.checkBookmarks(w, fail)
	m.checkEnd(w, fail)
}

// failFunc fails the test with a message about one client.
type failFunc = func(format string, a ...any)

// checkEvents checks that a client has got the next events that it must get, and no others.
func (m *model) checkEvents(w *follower, fail failFunc) {
	m.t.Helper()
	for i := w.checkedEvents; i < len(w.events); i++ {
		switch {
		case i >= len(w.want) || w.want[i].text != w.events[i]:
			fail("event %d is %.300q, want the first of %.300q", i, w.events[i], fmt.Sprint(w.want[min(i, len(w.want)):]))
		case w.want[i].revision > m.deliverableTo():
			fail("it got the change at %d", w.want[i].revision)
		case m.aborted:
			fail("it got %q after Abort", w.events[i])
		}
	}
	w.checkedEvents = len(w.events)
}

// checkBookmarks checks that a client has got each bookmark after all events up to its revision, and not too many bookmarks.
func (m *model) checkBookmarks(w *follower, fail failFunc) {
	m.t.Helper()
	for _, b := range w.bookmarks[w.checkedBookmarks:] {
		isWanted := w.options.Bookmarks && !m.aborted && b.revision > w.after && b.revision <= m.deliverableTo()
		isTooEarly := b.events < len(w.want) && w.want[b.events].revision <= b.revision // an event should come before it
		isTooLate := b.events > 0 && w.want[b.events-1].revision > b.revision
		if !isWanted || isTooEarly || isTooLate {
			fail("a bookmark at %d after %d events of %v", b.revision, b.events, w.want)
		}
	}
	w.checkedBookmarks = len(w.bookmarks)
	const firstAndLast = 2
	if most := w.extraBookmarks + firstAndLast + int(time.Since(w.begunAt)/bookmarkInterval); len(w.bookmarks) > most {
		fail("it got the bookmarks %v, want at most %d", w.bookmarks, most)
	}
}

// checkEnd checks that there is a reason for the ending of a watch, if it has ended.
func (m *model) checkEnd(w *follower, fail failFunc) {
	m.t.Helper()
	age := time.Since(w.begunAt)
	switch w.end {
	case EndTimeout:
		if age < w.options.Timeout {
			fail("it ends at its timeout after %v, want %v", age, w.options.Timeout)
		}
	case EndBehind:
		if !m.isForgotten(w) {
			fail("it ends as %s, though no change after %d is forgotten that concerns it", w.end, w.delivered)
		}
	case EndLost:
		hasCause := slices.Contains(m.endings, EndLost) || !m.lastLongDoubt.Before(w.begunAt)
		if !hasCause || age < minWatchLife {
			fail("it ends as %s after %v, and the broadcaster was ended as %q", w.end, age, m.endings)
		}
	case EndShutdown:
		if !slices.Contains(m.endings, EndShutdown) {
			fail("it ends as %s, though the process goes on", w.end)
		}
	}
}

// missing returns the number of events that a client has still to get.
func (w *follower) missing() int { return len(w.want) - len(w.events) }

// isForgotten reports whether a change that may concern a client was forgotten before the client got it.
func (m *model) isForgotten(w *follower) bool {
	retainedAfter := max(m.retainedAfter, m.span.Versions.Forgotten())
	// At its beginning, and for changes that are dispatched late, a watch also looks at changes that do not concern it.
	looksAtAll := w.delivered == w.after || w.undispatchedTo >= w.delivered
	if looksAtAll && retainedAfter > w.delivered {
		return true
	}
	return slices.ContainsFunc(m.log, func(l logged) bool {
		isLost := l.revision > w.delivered && l.revision <= retainedAfter
		return isLost && w.isConcerned(l)
	})
}

// readAll lets all clients read all events, after which no event up to the revision to may be missing.
func (m *model) readAll(to uint64) {
	const enough = 1000
	all := m.open()
	m.read(enough, all...)
	for _, w := range all {
		if w.end == "" && w.missing() > 0 && w.want[len(w.events)].revision <= to {
			m.t.Fatalf("a watch of %s after %d: at %d it lacks %.300q", w.name, w.after, to, fmt.Sprint(w.want[len(w.events):]))
		}
	}
	m.closeEnded()
}

// settle ends the doubt. Soon all clients must have all events, though more changes come. Then the time rest passes. If it is
// longer than bookmarkInterval, all clients that want bookmarks must have one at the newest revision after it.
func (m *model) settle(rest time.Duration) {
	m.setDoubtful(false)
	m.readAll(0)
	to := m.span.To
	bookmarks := map[*follower]int{}
	for _, w := range m.open() {
		bookmarks[w] = len(w.bookmarks)
	}
	for range 4 {
		m.write()
		time.Sleep(holdPollInterval / 2)
		synctest.Wait()
	}
	m.readAll(to)
	time.Sleep(rest)
	synctest.Wait()
	m.readAll(m.span.To)
	for _, w := range m.open() {
		if late := time.Since(w.begunAt) - w.options.Timeout; late > 0 {
			m.t.Fatalf("a watch goes on %v after its timeout", late)
		}
		isDue := rest > bookmarkInterval && w.options.Bookmarks && m.span.To > w.after
		if isDue && (len(w.bookmarks) == bookmarks[w] || !w.hasBookmarkAt(m.span.To)) {
			m.t.Fatalf("a watch of %s after %d got the bookmarks %v, want one at %d", w.name, w.after, w.bookmarks, m.span.To)
		}
	}
}

// hasBookmarkAt reports whether the last bookmark is at a revision.
func (w *follower) hasBookmarkAt(revision uint64) bool {
	n := len(w.bookmarks)
	return n > 0 && w.bookmarks[n-1].revision == revision
}

// finish ends all watches in a random way. Unless they are aborted, clients must first get all events and a last bookmark, even
// if the process ends meanwhile.
func (m *model) finish() {
	for range 5 {
		m.begin() // a watch must not end within a second
		m.write()
	}
	synctest.Wait()
	all := m.open()
	m.endBroadcaster()
	if m.broadcaster.Watch(Options{After: m.span.To, Timeout: time.Hour}) != nil {
		m.t.Error("a watch begins after the broadcaster has ended")
	}
	const longest = minWatchLife + maxEndSpread + time.Second
	for begunAt := time.Now(); time.Since(begunAt) <= longest; time.Sleep(time.Second / 2) {
		synctest.Wait()
		m.read(2, all...)
	}
	m.closeEnded()
	for _, w := range all {
		switch {
		case w.end == "":
			m.t.Errorf("a watch of %s goes on after %v", w.name, longest)
		case w.end == EndTimeout, m.aborted, m.lastLongDoubt.After(w.begunAt): // it may miss something
		case w.missing() > 0:
			m.t.Errorf("a watch of %s that ends as %s misses %d events", w.name, w.end, w.missing())
		case w.options.Bookmarks && m.span.To > w.after && !w.hasBookmarkAt(m.span.To):
			m.t.Errorf("a watch of %s that ends as %s got the bookmarks %v, want one at %d", w.name, w.end, w.bookmarks, m.span.To)
		}
	}
	m.checkCounts()
}

// endBroadcaster ends the broadcaster in a random way.
func (m *model) endBroadcaster() {
	switch m.random.IntN(4) {
	case 0: // the process ends
		m.endings = []Ending{EndShutdown}
		m.broadcaster.EndWithin(maxEndSpread, EndShutdown)
	case 1: // the state is lost
		m.endings = []Ending{EndLost}
		m.broadcaster.End()
	case 2: // the state may be wrong
		m.endings, m.aborted = []Ending{EndLost}, true
		m.broadcaster.Abort()
		if n := m.broadcaster.published.Load().Versions.Len(); n > 0 {
			m.t.Errorf("%d versions are held in memory after Abort, want none", n)
		}
	case 3: // the state is lost, and the process ends
		m.endings = []Ending{EndLost}
		m.broadcaster.End()
		time.Sleep(maxEndSpread / 2)
		m.read(1, m.open()...)
		m.closeEnded()
		m.endings = []Ending{EndLost, EndShutdown}
		m.broadcaster.EndWithin(time.Duration(m.random.IntN(2))*maxEndSpread, EndShutdown)
	}
}

// checkCounts checks that all watches are counted as ended, and none as open.
func (m *model) checkCounts() {
	stats := m.broadcaster.counts.Stats()
	ended := uint64(0)
	for _, n := range stats.Ended {
		ended += n
	}
	if stats.Open != 0 || m.broadcaster.Watchers() != 0 || ended != uint64(len(m.followers)) {
		m.t.Errorf("%d watchers and the counts %+v, want no watchers and %d ended", m.broadcaster.Watchers(), stats, len(m.followers))
	}
}

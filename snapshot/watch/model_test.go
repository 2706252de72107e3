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

// TestModel: whatever happens to a broadcaster, at random, each client is told in order what its query chooses of the log,
// from its revision on; nothing while that is in doubt, and all soon after. Bookmarks name no revision before which
// something is untold, and none is missing. A watch ends for a reason that there is, and then only.
func TestModel(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, seed)
				m := &model{cluster: c, kept: c.span.To}
				for range 150 {
					m.step()
				}
				m.handleFailure(0)
				m.finish()
			})
		})
	}
}

// model is what there is to know of a broadcaster, without looking into it.
type model struct {
	*cluster
	// clear is up to where changes may be told in a doubt, which began at a time.
	clear   uint64
	doubted time.Time
	// doubtful is when it was in doubt last for so long that watches end.
	doubtful time.Time
	// kept is the revision after which nothing is missing. Up to cut, changes were forgotten before anybody could
	// look at them.
	kept, cut uint64
	clients   []*follower
	endings   []Ending // those that the broadcaster has for all
	lost      bool
}

// follower is a client of a model.
type follower struct {
	*client
	name    string
	options Options
	begun   time.Time
	asleep  bool // until it is woken
	early   int  // bookmarks that came before their time
	// unclear is up to where there were changes when it read before they were clear, or dispatched: it looks at all
	// of them.
	unclear uint64
	// checked is how much of what it was told was looked at.
	checked struct{ events, bookmarks int }
	// want is what it is to be told of the first so many changes of the log.
	want   []told
	logged int
}

func (m *model) step() {
	switch m.rnd.IntN(20) {
	case 0, 1, 2, 3, 4:
		m.write()
	case 5, 6, 7, 8:
		m.begin()
	case 9, 10, 11:
		m.read(1+m.rnd.IntN(3), slices.DeleteFunc(m.open(), func(*follower) bool { return m.rnd.IntN(2) == 0 })...)
	case 12:
		m.trim(1 + m.rnd.IntN(10))
	case 13:
		m.forget()
	case 14:
		m.doubt(m.rnd.IntN(2) == 0)
	case 15:
		time.Sleep([]time.Duration{0, definedPollInterval / 2, time.Second, definedTimeout / 2, time.Minute}[m.rnd.IntN(5)])
	case 16:
		if all := m.open(); len(all) > 0 {
			all[0].end = EndGone
		}
	case 17:
		m.unseen()
	case 18:
		m.handleFailure([]time.Duration{0, bookmarkInterval + bookmarkJitter}[m.rnd.IntN(2)])
	case 19:
		if m.rnd.IntN(4) == 0 {
			m.renew()
			m.clear, m.kept = m.span.To, m.span.To
		}
	}
	if m.rnd.IntN(2) == 0 {
		synctest.Wait()
		m.whoWakes()
	}
	m.tidy()
}

// whoWakes looks whether somebody was woken for a change that cannot be for him.
func (m *model) whoWakes() {
	for _, w := range m.open() {
		due := w.due.Load()
		i := slices.IndexFunc(m.log, func(l logged) bool { return l.revision == due })
		if w.asleep && w.delivered > w.after && i >= 0 && !w.concerns(m.log[i]) && due > max(m.cut, w.unclear) {
			m.t.Fatalf("a watch of %s wakes for the change at %d", w.name, due)
		}
	}
}

// concerns reports whether a client is told of a change: an object before or after it is in the selection.
func (w *follower) concerns(l logged) bool {
	return selects(w.query, l.Before) || !l.Deleted && selects(w.query, l.After)
}

// tidy closes what has ended, and notes what is forgotten.
func (m *model) tidy() {
	m.kept = max(m.kept, m.span.Versions.Forgotten())
	for _, w := range m.clients {
		if w.end != "" {
			w.Close(w.end)
		}
	}
}

// open are the clients that have not ended.
func (m *model) open() (all []*follower) {
	for _, w := range m.clients {
		if w.end == "" {
			all = append(all, w)
		}
	}
	return all
}

// begin begins a watch, from any revision that can be told. None begins from another.
func (m *model) begin() {
	synctest.Wait()
	all := queries(m.t)
	names := slices.Sorted(maps.Keys(all))
	name := names[m.rnd.IntN(len(names))]
	for _, after := range []uint64{m.kept - 1, m.span.To + 1} {
		filter := index.NewFilter(m.broadcaster.Form().Envelope, all[name])
		if m.broadcaster.Watch(Options{After: after, Filter: filter, Timeout: time.Hour, Defined: m.definition.isKnown}) != nil {
			m.t.Fatalf("a watch after %d begins, where the history is after %d until %d", after, m.kept, m.span.To)
		}
	}
	if len(m.open()) == 0 {
		m.clear = m.span.To // the first one of a broadcaster comes with a proof
	}
	o := Options{
		After: m.kept + m.rnd.Uint64N(m.span.To-m.kept+1), Bookmarks: m.rnd.IntN(2) == 0,
		Timeout: []time.Duration{24 * time.Hour, 150 * time.Second}[m.rnd.IntN(2)],
	}
	m.clients = append(m.clients, &follower{client: m.watch(all[name], o), name: name, options: o, begun: time.Now()})
}

// forget lets the history begin at what is newest: where nothing changes, that is not forgotten.
func (m *model) forget() {
	m.span.To += m.rnd.Uint64N(10)
	m.span.From = m.span.To
	m.span.Versions.Forget(m.span.Versions.Len() - 1)
	m.broadcaster.Publish(m.span)
}

// doubt begins or ends one.
func (m *model) doubt(begins bool) {
	m.notice()
	if wasDoubtful := m.definition.doubtful.Swap(begins); begins && !wasDoubtful {
		m.clear, m.doubted = m.span.To, time.Now()
	}
}

// notice notes whether the doubt has taken so long that watches end.
func (m *model) notice() {
	if m.definition.doubtful.Load() && time.Since(m.doubted) >= definedTimeout {
		m.doubtful = time.Now()
	}
}

// mayTell is up to where changes may be told.
func (m *model) mayTell() uint64 {
	if m.definition.doubtful.Load() {
		return m.clear
	}
	return m.span.To
}

// unseen is what happens where nobody looks between two steps of the broadcaster.
func (m *model) unseen() {
	synctest.Wait()
	if len(m.open()) == 0 {
		return
	}
	if m.rnd.IntN(4) == 0 { // changes are forgotten in the step in which they come
		broadcaster := m.broadcaster
		m.broadcaster = NewBroadcaster(*broadcaster.Form(), m.span, &Counts{}, &Pacer{})
		for range 3 {
			m.write()
		}
		m.trim(1)
		m.broadcaster = broadcaster
		m.broadcaster.Publish(m.span)
		m.cut = max(m.cut, m.span.Versions.Forgotten())
		return
	}
	m.broadcaster.mu.Lock() // it cannot look
	defer m.broadcaster.mu.Unlock()
	m.write()
	for _, w := range m.open() {
		if w.pastDeadline.Load() || m.rnd.IntN(2) == 0 {
			continue
		}
		if w.options.Bookmarks {
			w.bookmarkDue.Store(true)
			w.wakeUp()
			w.early++
		}
		w.unclear = m.span.To
		m.read(1, w)
	}
}

// read has clients read at once what they are told, so often or until there is nothing: then they must be woken first.
func (m *model) read(times int, some ...*follower) {
	var reading sync.WaitGroup
	for _, w := range some {
		reading.Go(func() {
			for n := 0; n < times && w.end == "" && (!w.asleep || len(w.wake) > 0); n++ {
				if len(w.wake) > 0 {
					w.Wait(m.t.Context())
				}
				w.asleep = !w.take(m.t.Context()) && w.heldSince.IsZero()
			}
		})
	}
	reading.Wait()
	for _, w := range some {
		m.check(w)
	}
}

// check holds what a client was told since the last check against what it is to be told.
func (m *model) check(w *follower) {
	m.notice()
	w.want = append(w.want, m.expected(w.query, w.after, w.logged)...)
	w.logged = len(m.log)
	fail := func(format string, a ...any) {
		m.t.Helper()
		m.t.Fatalf("a watch of %s after %d, at %d of %d: %s", w.name, w.after, m.mayTell(), m.span.To, fmt.Sprintf(format, a...))
	}
	for i := w.checked.events; i < len(w.events); i++ {
		switch {
		case i >= len(w.want) || w.want[i].text != w.events[i]:
			fail("event %d is %.300q of %.300q", i, w.events[i], fmt.Sprint(w.want[min(i, len(w.want)):]))
		case w.want[i].revision > m.mayTell():
			fail("it is told of %d in doubt", w.want[i].revision)
		case m.lost:
			fail("it is told what may be wrong: %q", w.events[i])
		}
	}
	for _, b := range w.bookmarks[w.checked.bookmarks:] {
		untold := b.events < len(w.want) && w.want[b.events].revision <= b.at
		if !w.options.Bookmarks || b.at <= w.after || b.at > m.mayTell() || m.lost || untold || b.events > 0 && w.want[b.events-1].revision > b.at {
			fail("a bookmark at %d after %d events of %v", b.at, b.events, w.want)
		}
	}
	w.checked.events, w.checked.bookmarks = len(w.events), len(w.bookmarks)
	if most := w.early + 2 + int(time.Since(w.begun)/bookmarkInterval); len(w.bookmarks) > most {
		fail("it has the bookmarks %v, and at most %d are due", w.bookmarks, most)
	}
	switch w.end {
	case EndTimeout:
		if time.Since(w.begun) < w.options.Timeout {
			fail("it ends after %v", time.Since(w.begun))
		}
	case EndBehind:
		if !m.forgotten(w) {
			fail("it ends, though nothing is forgotten that it is to be told after %d", w.delivered)
		}
	case EndLost:
		if !slices.Contains(m.endings, EndLost) && m.doubtful.Before(w.begun) || time.Since(w.begun) < minWatchLife {
			fail("it ends after %v, the broadcaster as %q", time.Since(w.begun), m.endings)
		}
	case EndShutdown:
		if !slices.Contains(m.endings, EndShutdown) {
			fail("it ends, though the process goes on")
		}
	}
}

// untold is how many events a client is still to be told.
func (w *follower) untold() int { return len(w.want) - len(w.events) }

// forgotten reports whether something that may concern a client was forgotten before it was told.
func (m *model) forgotten(w *follower) bool {
	kept := max(m.kept, m.span.Versions.Forgotten())
	if kept > w.delivered && (w.delivered == w.after || w.unclear >= w.delivered) {
		return true // then it looks at everything
	}
	return slices.ContainsFunc(m.log, func(l logged) bool {
		return l.revision > w.delivered && l.revision <= kept && (l.revision <= m.cut || w.concerns(l))
	})
}

// readAll has everybody read everything, which must be all up to a revision.
func (m *model) readAll(to uint64) {
	all := m.open()
	m.read(1000, all...)
	for _, w := range all {
		if w.end == "" && w.untold() > 0 && w.want[len(w.events)].revision <= to {
			m.t.Fatalf("a watch of %s after %d, at %d, is not told %.300q", w.name, w.after, to, fmt.Sprint(w.want[len(w.events):]))
		}
	}
	m.tidy()
}

// handleFailure ends all doubt, and waits. Then everybody has been told everything.
func (m *model) handleFailure(after time.Duration) {
	m.doubt(false)
	m.readAll(0)
	to, bookmarks := m.span.To, map[*follower]int{}
	for _, w := range m.open() {
		bookmarks[w] = len(w.bookmarks)
	}
	for range 4 { // changes that come all the time do not put that off
		m.write()
		time.Sleep(definedPollInterval / 2)
		synctest.Wait()
	}
	m.readAll(to)
	time.Sleep(after)
	synctest.Wait()
	m.readAll(m.span.To)
	for _, w := range m.open() {
		if late := time.Since(w.begun) - w.options.Timeout; late > 0 {
			m.t.Fatalf("a watch goes on %v after its timeout", late)
		}
		if after > bookmarkInterval && w.options.Bookmarks && m.span.To > w.after && (len(w.bookmarks) == bookmarks[w] || !w.isAt(m.span.To)) {
			m.t.Fatalf("a watch of %s after %d has the bookmarks %v, and none at %d", w.name, w.after, w.bookmarks, m.span.To)
		}
	}
}

// isAt reports whether the last bookmark is at a revision.
func (w *follower) isAt(revision uint64) bool {
	n := len(w.bookmarks)
	return n > 0 && w.bookmarks[n-1].at == revision
}

// finish ends all. Unless what they follow may be wrong, they are told everything before, and a last bookmark, also
// if the process ends meanwhile.
func (m *model) finish() {
	for range 5 {
		m.begin() // none ends within a second
		m.write()
	}
	synctest.Wait()
	all := m.open()
	end := func(why Ending, by func()) {
		m.endings = append(m.endings, why)
		by()
	}
	switch m.rnd.IntN(4) {
	case 0:
		end(EndShutdown, func() { m.broadcaster.EndWithin(maxEndSpread, EndShutdown) })
	case 1:
		end(EndLost, func() { m.broadcaster.End() })
	case 2:
		m.lost = true
		end(EndLost, func() { m.broadcaster.Abort() })
		if n := m.broadcaster.published.Load().Versions.Len(); n > 0 {
			m.t.Errorf("%d versions are held that nobody is told", n)
		}
	case 3:
		end(EndLost, func() { m.broadcaster.End() })
		time.Sleep(maxEndSpread / 2)
		m.read(1, all...)
		m.tidy()
		end(EndShutdown, func() { m.broadcaster.EndWithin(time.Duration(m.rnd.IntN(2))*maxEndSpread, EndShutdown) })
	}
	if m.broadcaster.Watch(Options{After: m.span.To, Timeout: time.Hour}) != nil {
		m.t.Error("a watch begins in a span that has ended")
	}
	for begun := time.Now(); time.Since(begun) <= minWatchLife+maxEndSpread+time.Second; time.Sleep(time.Second / 2) {
		synctest.Wait()
		m.read(2, all...)
	}
	m.tidy()
	for _, w := range all {
		switch {
		case w.end == "":
			m.t.Errorf("a watch of %s goes on", w.name)
		case w.end == EndTimeout, m.lost, m.doubtful.After(w.begun):
		case w.untold() > 0:
			m.t.Errorf("a watch of %s that ends as %s is not told %d events", w.name, w.end, w.untold())
		case w.options.Bookmarks && m.span.To > w.after && !w.isAt(m.span.To):
			m.t.Errorf("a watch of %s that ends as %s has the bookmarks %v, not %d", w.name, w.end, w.bookmarks, m.span.To)
		}
	}
	ended := uint64(0)
	stats := m.broadcaster.counts.Stats()
	for _, n := range stats.Ended {
		ended += n
	}
	if stats.Open != 0 || m.broadcaster.Watchers() != 0 || ended != uint64(len(m.clients)) {
		m.t.Errorf("counted %+v, and %d watchers, of %d", stats, m.broadcaster.Watchers(), len(m.clients))
	}
}

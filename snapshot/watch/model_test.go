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

// TestModel: whatever happens to a broadcaster,
//
//   - each client gets the events after its revision that its query selects, in order;
//   - it gets nothing new while IsDefined is false, and everything soon after that;
//   - it gets the bookmarks that it asked for, each after all events up to the bookmark's revision;
//   - its watch ends only for a reason that the model knows.
//
// Each subtest makes 150 random steps, such as a write, a new watch or a client that reads. It checks what the clients get
// meanwhile. At the end it ends the broadcaster, and checks that no client lacks anything.
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
				m.expectAllDelivered(noPause)
				m.finish()
			})
		})
	}
}

// model knows what a broadcaster must do, without looking into it.
type model struct {
	*fakeCluster
	clients       []*modelClient
	retainedAfter uint64   // no change after this revision is forgotten
	endings       []Ending // the endings with which the broadcaster was ended; empty before finish
	aborted       bool     // Abort was called

	// A doubt is a time in which IsDefined is false, so that nothing new may be delivered.
	doubtBegan    time.Time // when the last doubt began
	confirmed     uint64    // the cluster's revision when the last doubt began
	lastLongDoubt time.Time // when the model last saw a doubt that was as long as holdTimeout, so that watches may end
}

// modelClient is a client, and what it must have received.
type modelClient struct {
	*watchClient
	queryName string
	options   Options
	begunAt   time.Time
	// asleep reports whether the last Take returned nothing, outside of a doubt. Then the client does not call Take again
	// before it is woken.
	asleep bool

	want       []wantEvent // the events that the client must get for the first wantLogged changes of the log
	wantLogged int
	// The numbers of events and bookmarks that were checked already.
	checkedEvents, checkedBookmarks int

	// readUndispatched lets the client call Take after a change was published, but before the change is dispatched. The client
	// is woken for the change later, though it may have the change by then.
	undispatchedTo uint64 // the revision of the last change that readUndispatched has published
	extraBookmarks int    // the number of bookmarks that readUndispatched has made due, in addition to those of the timer
}

// Pauses of expectAllDelivered.
const (
	noPause           time.Duration = 0
	untilNextBookmark               = bookmarkInterval + bookmarkJitter // each client that wants bookmarks gets one
)

// step does one thing at random. The higher its weight, the more often a thing is done.
func (m *model) step() {
	steps := []struct {
		weight int
		run    func()
	}{
		{weight: 20, run: m.write},
		{weight: 16, run: m.begin},
		{weight: 12, run: m.readSome},
		{weight: 4, run: m.trimSome},
		{weight: 4, run: m.forget},
		{weight: 4, run: m.beginOrEndDoubt},
		{weight: 4, run: m.pause},
		{weight: 4, run: m.loseOldestClient},
		{weight: 3, run: m.readUndispatched},
		{weight: 1, run: m.load},
		{weight: 2, run: func() { m.expectAllDelivered(noPause) }},
		{weight: 2, run: func() { m.expectAllDelivered(untilNextBookmark) }},
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

// readSome lets about half of the clients read, each up to three times.
func (m *model) readSome() {
	some := slices.DeleteFunc(m.open(), func(*modelClient) bool { return m.flipCoin() })
	m.read(1+m.random.IntN(3), some...)
}

// pause lets some time pass.
func (m *model) pause() {
	pauses := []time.Duration{0, holdPollInterval / 2, time.Second, holdTimeout / 2, time.Minute}
	time.Sleep(pauses[m.random.IntN(len(pauses))])
}

// load replaces the history by the newest state alone. A client that has not read all changes before is behind then.
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

// checkWakes checks that no client was woken for a change that does not concern it. In two cases, firstDue may be any
// change, so they are not checked: at the beginning of a watch, and after readUndispatched.
func (m *model) checkWakes() {
	for _, client := range m.open() {
		due := client.firstDue.Load()
		isFirst := client.delivered == client.after
		isUndispatched := due <= client.undispatchedTo
		if !client.asleep || isFirst || isUndispatched {
			continue
		}
		i := slices.IndexFunc(m.log, func(l logged) bool { return l.revision == due })
		if i >= 0 && !client.isConcerned(m.log[i]) {
			m.t.Fatalf("a watch of %s is woken for the change at %d", client.queryName, due)
		}
	}
}

// isConcerned reports whether a change concerns a client: its query selects the object before or after the change.
func (c *modelClient) isConcerned(l logged) bool {
	selectedBefore := selects(c.query, l.Before)
	selectedAfter := !l.Deleted && selects(c.query, l.After)
	return selectedBefore || selectedAfter
}

// closeEnded closes the watches that have ended.
func (m *model) closeEnded() {
	m.retainedAfter = max(m.retainedAfter, m.span.Versions.Forgotten())
	for _, client := range m.clients {
		if client.end != "" {
			client.Close(client.end)
		}
	}
}

// open returns the clients whose watches have not ended.
func (m *model) open() []*modelClient {
	return slices.DeleteFunc(slices.Clone(m.clients), func(client *modelClient) bool { return client.end != "" })
}

// begin begins a watch with a random query after a random revision of the history. It also checks that no watch begins before
// or after the history.
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
	options := Options{
		After:     m.retainedAfter + m.random.Uint64N(m.span.To-m.retainedAfter+1),
		Bookmarks: m.flipCoin(),
		Timeout:   24 * time.Hour,
	}
	if isShort := m.flipCoin(); isShort {
		options.Timeout = 150 * time.Second
	}
	client := m.watch(all[name], options)
	m.clients = append(m.clients, &modelClient{watchClient: client, queryName: name, options: options, begunAt: time.Now()})
}

// forget makes the history forget all versions but the newest, as when nothing has changed for long.
func (m *model) forget() {
	m.span.To += m.random.Uint64N(10)
	m.span.From = m.span.To
	m.span.Versions.Forget(m.span.Versions.Len() - 1)
	m.broadcaster.Publish(m.span)
}

// trimSome makes the history forget all but a few versions.
func (m *model) trimSome() { m.trim(1 + m.random.IntN(10)) }

// beginOrEndDoubt begins or ends a doubt, or changes nothing.
func (m *model) beginOrEndDoubt() { m.setDoubtful(m.flipCoin()) }

// setDoubtful sets whether there is a doubt.
func (m *model) setDoubtful(doubtful bool) {
	m.noteLongDoubt()
	wasDoubtful := m.definition.doubtful.Swap(doubtful)
	if doubtful && !wasDoubtful {
		m.confirmed, m.doubtBegan = m.span.To, time.Now()
	}
}

// noteLongDoubt records the time if there is a doubt that has lasted for holdTimeout, after which watches may end.
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

// readUndispatched lets some clients read in the middle of Publish: when a change is published, but not dispatched yet. Clients
// that want bookmarks read because a bookmark is due.
func (m *model) readUndispatched() {
	synctest.Wait()

	// A change is written, but published to another broadcaster, which nobody watches.
	broadcaster := m.broadcaster
	m.broadcaster = NewBroadcaster(*broadcaster.Form(), m.span, &Counts{}, &Pacer{})
	m.write()
	m.broadcaster = broadcaster

	// This is the first half of Publish. All of Publish follows when the clients have read.
	published := m.span
	broadcaster.published.Store(&published)
	for _, client := range m.open() {
		if client.phase.Load() != phaseOpen || m.flipCoin() {
			continue
		}
		if client.options.Bookmarks {
			client.bookmarkDue.Store(true)
			client.wakeUp()
			client.extraBookmarks++
		}
		client.undispatchedTo = m.span.To
		m.read(1, client)
	}
	broadcaster.Publish(m.span)
}

// read lets clients call Take at the same time, each up to a number of times, and then checks what they have got.
func (m *model) read(maxTakes int, clients ...*modelClient) {
	var reading sync.WaitGroup
	for _, client := range clients {
		reading.Go(func() {
			for range maxTakes {
				isWoken := len(client.wake) > 0
				if client.end != "" || client.asleep && !isWoken {
					return
				}
				if isWoken {
					client.Wait(m.t.Context()) // returns at once
				}
				gotAny := client.receive(m.t.Context())
				polls := !client.heldSince.IsZero() // in a doubt, Wait ends after holdPollInterval
				client.asleep = !gotAny && !polls
			}
		})
	}
	reading.Wait()
	for _, client := range clients {
		m.check(client)
	}
}

// check compares what a client has got since the last check with what it must get.
func (m *model) check(client *modelClient) {
	m.noteLongDoubt()
	client.want = append(client.want, wantEvents(m.log[client.wantLogged:], client.query, client.after)...)
	client.wantLogged = len(m.log)
	fail := func(format string, a ...any) {
		m.t.Helper()
		m.t.Fatalf("a watch of %s after %d, while changes up to %d may be delivered, and the newest is %d: %s",
			client.queryName, client.after, m.deliverableTo(), m.span.To, fmt.Sprintf(format, a...))
	}
	m.checkEvents(client, fail)
	m.checkBookmarks(client, fail)
	m.checkEnd(client, fail)
}

// failFunc fails the test with a message about one client.
type failFunc = func(format string, a ...any)

// checkEvents checks that a client has got the next events that it must get, and no others.
func (m *model) checkEvents(client *modelClient, fail failFunc) {
	m.t.Helper()
	for i := client.checkedEvents; i < len(client.events); i++ {
		got := client.events[i]
		stillWanted := client.want[min(i, len(client.want)):]
		switch {
		case len(stillWanted) == 0 || stillWanted[0].text != got:
			fail("event %d: got %.300q, want the first of %.300q", i, got, fmt.Sprint(stillWanted))
		case stillWanted[0].revision > m.deliverableTo():
			fail("it got the change at %d in the doubt", stillWanted[0].revision)
		case m.aborted:
			fail("it got %q after Abort", got)
		}
	}
	client.checkedEvents = len(client.events)
}

// checkBookmarks checks that a client has got each bookmark after all events up to its revision, and not too many bookmarks.
func (m *model) checkBookmarks(client *modelClient, fail failFunc) {
	m.t.Helper()
	for _, b := range client.bookmarks[client.checkedBookmarks:] {
		mayComeNow := client.options.Bookmarks && !m.aborted
		mayHaveRevision := b.revision > client.after && b.revision <= m.deliverableTo()
		isTooEarly := b.events < len(client.want) && client.want[b.events].revision <= b.revision // the next event belongs before it
		isTooLate := b.events > 0 && client.want[b.events-1].revision > b.revision                // the last event belongs after it
		if !mayComeNow || !mayHaveRevision || isTooEarly || isTooLate {
			fail("it got a bookmark at %d after %d events of %v", b.revision, b.events, client.want)
		}
	}
	client.checkedBookmarks = len(client.bookmarks)
	const lastAtDeadline, lastWhileDraining = 1, 1
	byTimer := int(time.Since(client.begunAt)/bookmarkInterval) + lastAtDeadline + lastWhileDraining
	if most := byTimer + client.extraBookmarks; len(client.bookmarks) > most {
		fail("it got the bookmarks %v, want at most %d", client.bookmarks, most)
	}
}

// checkEnd checks that there is a reason for the ending of a watch, if it has ended.
func (m *model) checkEnd(client *modelClient, fail failFunc) {
	m.t.Helper()
	age := time.Since(client.begunAt)
	switch client.end {
	case EndTimeout:
		if age < client.options.Timeout {
			fail("it ends with %q after %v, want after %v", client.end, age, client.options.Timeout)
		}
	case EndBehind:
		if !m.isForgotten(client) {
			fail("it ends with %q, though no change after %d is forgotten that concerns it", client.end, client.delivered)
		}
	case EndLost:
		isLost := slices.Contains(m.endings, EndLost)
		hadLongDoubt := !m.lastLongDoubt.Before(client.begunAt)
		if !isLost && !hadLongDoubt || age < minWatchLife {
			fail("it ends with %q after %v, and the broadcaster was ended with %q", client.end, age, m.endings)
		}
	case EndShutdown:
		if !slices.Contains(m.endings, EndShutdown) {
			fail("it ends with %q, though the process goes on", client.end)
		}
	}
}

// missing returns the number of events that a client has still to get.
func (c *modelClient) missing() int { return len(c.want) - len(c.events) }

// isForgotten reports whether a change that may concern a client was forgotten before the client got it.
func (m *model) isForgotten(client *modelClient) bool {
	retainedAfter := max(m.retainedAfter, m.span.Versions.Forgotten())
	// As in checkWakes, a client may have to look at any change, even if the change does not concern it.
	isFirst := client.delivered == client.after
	isUndispatched := client.undispatchedTo >= client.delivered
	if (isFirst || isUndispatched) && retainedAfter > client.delivered {
		return true
	}
	return slices.ContainsFunc(m.log, func(l logged) bool {
		wasForgotten := l.revision > client.delivered && l.revision <= retainedAfter
		return wasForgotten && client.isConcerned(l)
	})
}

// readAll lets all clients read as much as they can. After that, no client may lack an event up to the revision to.
func (m *model) readAll(to uint64) {
	const enoughTakes = 1000
	all := m.open()
	m.read(enoughTakes, all...)
	for _, client := range all {
		if client.end == "" && client.missing() > 0 && client.want[len(client.events)].revision <= to {
			m.t.Fatalf("a watch of %s after %d: it lacks %.300q, want everything up to %d",
				client.queryName, client.after, fmt.Sprint(client.want[len(client.events):]), to)
		}
	}
	m.closeEnded()
}

// expectAllDelivered ends the doubt, if there is one, and checks that all clients soon have all events. After the pause
// untilNextBookmark, all clients that want bookmarks must also have one at the newest revision.
func (m *model) expectAllDelivered(pause time.Duration) {
	const noRevision = 0 // clients may still lack all events, since they may wait for holdPollInterval
	m.setDoubtful(false)
	m.readAll(noRevision)

	// Within two holdPollIntervals, the clients have everything from before, though more changes come.
	written := m.span.To
	bookmarksBefore := map[*modelClient]int{}
	for _, client := range m.open() {
		bookmarksBefore[client] = len(client.bookmarks)
	}
	for range 4 {
		m.write()
		time.Sleep(holdPollInterval / 2)
		synctest.Wait()
	}
	m.readAll(written)

	// After the pause, they have everything.
	time.Sleep(pause)
	synctest.Wait()
	m.readAll(m.span.To)
	for _, client := range m.open() {
		if late := time.Since(client.begunAt) - client.options.Timeout; late > 0 {
			m.t.Fatalf("a watch goes on %v after its timeout", late)
		}
		wantsBookmark := pause == untilNextBookmark && client.options.Bookmarks && m.span.To > client.after
		gotBookmark := len(client.bookmarks) > bookmarksBefore[client] && client.hasBookmarkAt(m.span.To)
		if wantsBookmark && !gotBookmark {
			m.t.Fatalf("a watch of %s after %d: got the bookmarks %v, want one at %d",
				client.queryName, client.after, client.bookmarks, m.span.To)
		}
	}
}

// hasBookmarkAt reports whether the last bookmark is at a revision.
func (c *modelClient) hasBookmarkAt(revision uint64) bool {
	n := len(c.bookmarks)
	return n > 0 && c.bookmarks[n-1].revision == revision
}

// finish ends the broadcaster in a random way, and checks that all watches end in time. Clients must first get all events and a
// last bookmark, even if the process ends meanwhile. After Abort they may get nothing more.
func (m *model) finish() {
	// Some watches begin just before. They must not end within minWatchLife, 1 s.
	for range 5 {
		m.begin()
		m.write()
	}
	synctest.Wait()
	all := m.open()
	m.endBroadcaster()
	if m.broadcaster.Watch(Options{After: m.span.To, Timeout: time.Hour}) != nil {
		m.t.Error("a watch begins after the broadcaster has ended")
	}

	// The clients read twice in each half second, until all watches must have ended.
	const longest = minWatchLife + maxEndSpread + time.Second
	for begunAt := time.Now(); time.Since(begunAt) <= longest; time.Sleep(time.Second / 2) {
		synctest.Wait()
		m.read(2, all...)
	}
	m.closeEnded()
	for _, client := range all {
		mayLackSome := client.end == EndTimeout || m.aborted || m.lastLongDoubt.After(client.begunAt)
		wantsBookmark := client.options.Bookmarks && m.span.To > client.after
		switch {
		case client.end == "":
			m.t.Errorf("a watch of %s goes on after %v, want it to end", client.queryName, longest)
		case mayLackSome: // its events and bookmarks are not checked
		case client.missing() > 0:
			m.t.Errorf("a watch of %s that ends with %q: got %d events too few", client.queryName, client.end, client.missing())
		case wantsBookmark && !client.hasBookmarkAt(m.span.To):
			m.t.Errorf("a watch of %s that ends with %q: got the bookmarks %v, want one at %d",
				client.queryName, client.end, client.bookmarks, m.span.To)
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
		shutdown := maxEndSpread
		if atOnce := m.flipCoin(); atOnce {
			shutdown = 0
		}
		m.endings = []Ending{EndLost, EndShutdown}
		m.broadcaster.EndWithin(shutdown, EndShutdown)
	}
}

// checkCounts checks that all watches are counted as ended, and none as open.
func (m *model) checkCounts() {
	stats := m.broadcaster.counts.Stats()
	ended := uint64(0)
	for _, n := range stats.Ended {
		ended += n
	}
	if stats.Open != 0 || m.broadcaster.Watchers() != 0 || ended != uint64(len(m.clients)) {
		m.t.Errorf("%d watchers and the counts %+v, want no watchers and %d ended", m.broadcaster.Watchers(), stats, len(m.clients))
	}
}

package watch

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/listproxy/listproxy/snapshot/index"
)

// standing is what a hub asks, and how often it was asked.
type standing struct {
	doubtful atomic.Bool
	asked    atomic.Int64
}

func (s *standing) stands() bool {
	s.asked.Add(1)
	return !s.doubtful.Load()
}

// add tells the hub of a new object in a namespace.
func (c *cluster) add(namespace string) {
	revision := c.span.To + 1
	c.change(revision, index.Change{After: c.object(namespace, "x", "1", "", revision)})
}

// clients are so many that watch a namespace.
func (c *cluster) clients(n int, namespace string, o Options) []*client {
	all := make([]*client, n)
	for i := range all {
		o.After = c.span.To
		all[i] = c.watch(index.Query{Scope: index.Scope{Namespace: namespace}}, o)
	}
	return all
}

// follow reads what a client is told until it ends, then sends when that was.
func (w *client) follow(t *testing.T, ended chan<- time.Time) {
	t.Helper()
	go func() {
		w.readOn(t.Context())
		w.Close(w.end)
		ended <- time.Now()
	}()
}

// TestAskedOnceForAll: each change is told only after somebody has asked, when the change was there,
// whether it stands; and one question is for all who are told the same.
func TestAskedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, on := newCluster(t, 1), standing{}
		all := c.clients(100, "n1", Options{Defined: on.stands})
		for i := range 3 {
			before := on.asked.Load()
			c.add("n1")
			synctest.Wait()
			for _, w := range all {
				if !w.take(t.Context()) {
					t.Fatal("it was not told")
				}
			}
			if asked := on.asked.Load() - before; asked != 1 {
				t.Errorf("change %d: asked %d times", i, asked)
			}
		}
		on.doubtful.Store(true)
		c.add("n1")
		synctest.Wait()
		for _, w := range all {
			if w.take(t.Context()) {
				t.Error("told what is in doubt")
			}
		}
	})
}

// TestDoubt: while what a hub tells of is in doubt, its cursors are told nothing, no bookmark either.
// The hub asks for all of them, and all go on soon after the doubt. Nothing is missing then.
func TestDoubt(t *testing.T) {
	const clients = 100
	synctest.Test(t, func(t *testing.T) {
		c, on := newCluster(t, 1), standing{}
		all := c.clients(clients, "n1", Options{Defined: on.stands, Bookmarks: true})
		all = append(all, c.clients(clients, "n2", Options{Defined: on.stands, Bookmarks: true})...)
		ended := make(chan time.Time, len(all))
		for _, w := range all {
			w.follow(t, ended)
		}
		told := func() (events, bookmarks int) {
			synctest.Wait()
			for _, w := range all {
				events, bookmarks = events+len(w.events), bookmarks+len(w.bookmarks)
			}
			return events, bookmarks
		}
		time.Sleep(50 * time.Second) // bookmarks come after a minute
		on.doubtful.Store(true)
		c.add("n1")
		c.add("n1")
		synctest.Wait()
		before := on.asked.Load()
		time.Sleep(definedWait - 5*time.Second)
		if events, bookmarks := told(); events+bookmarks > 0 {
			t.Errorf("%d events and %d bookmarks are told in doubt", events, bookmarks)
		}
		polls := int64((definedWait - 5*time.Second) / askPause)
		// Bookmarks are due meanwhile: each cursor asks once.
		if asked := on.asked.Load() - before; asked < polls/2 || asked > 2*polls+2*clients {
			t.Errorf("asked %d times", asked)
		}
		on.doubtful.Store(false)
		time.Sleep(askPause)
		if events, bookmarks := told(); events != 2*clients || bookmarks != 2*clients {
			t.Errorf("%d events and %d bookmarks are told after the doubt", events, bookmarks)
		}
		time.Sleep(definedWait) // nobody ends for what is over
		c.add("n2")
		synctest.Wait()
		on.doubtful.Store(true)
		c.add("n1") // another doubt
		time.Sleep(time.Second)
		on.doubtful.Store(false)
		time.Sleep(askPause + longestEnd)
		if events, _ := told(); events != 4*clients || len(ended) > 0 {
			t.Errorf("%d events are told, and %d cursors have ended", events, len(ended))
		}
		c.hub.EndWithin(0, EndShutdown)
		for range all {
			<-ended
		}
	})
}

// TestDoubtThatLasts: those who have something to be told end, each at a moment of its own, and none
// before definedWait. The others go on.
func TestDoubtThatLasts(t *testing.T) {
	const clients = 100
	synctest.Test(t, func(t *testing.T) {
		c, on := newCluster(t, 1), standing{}
		waiting := c.clients(clients, "n1", Options{Defined: on.stands})
		idle := c.clients(clients, "n3", Options{Defined: on.stands})
		ended, rest := make(chan time.Time, clients), make(chan time.Time, clients)
		for i := range clients {
			waiting[i].follow(t, ended)
			idle[i].follow(t, rest)
		}
		time.Sleep(time.Minute)
		on.doubtful.Store(true)
		c.add("n1")
		begun, moments := time.Now(), map[time.Time]bool{}
		time.Sleep(definedWait + 2*askPause + longestEnd)
		synctest.Wait()
		if len(ended) != clients || len(rest) > 0 {
			t.Fatalf("%d have ended, and %d of the others", len(ended), len(rest))
		}
		for range clients {
			at := <-ended
			moments[at] = true
			if at.Sub(begun) < definedWait {
				t.Errorf("ended after %v", at.Sub(begun))
			}
		}
		if len(moments) < clients/2 {
			t.Errorf("they ended at %d moments", len(moments))
		}
		for _, w := range slices.Concat(waiting, idle) {
			if len(w.events) > 0 {
				t.Errorf("told %q", w.events)
			}
		}
		on.doubtful.Store(false)
		time.Sleep(askPause)
		synctest.Wait()
		if len(rest) > 0 {
			t.Errorf("%d of the others have ended", len(rest))
		}
		c.hub.EndWithin(0, EndShutdown)
		for range clients {
			<-rest
		}
		if waiting[0].end != EndLost || idle[0].end != EndShutdown {
			t.Errorf("ended as %q and %q", waiting[0].end, idle[0].end)
		}
	})
}

// TestLostWhileAsked: what is told may be lost while it is asked whether it stands.
func TestLostWhileAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.clients(1, "n1", Options{Defined: func() bool { c.hub.End(true); return true }})[0]
		ended := make(chan time.Time, 1)
		c.add("n1")
		w.follow(t, ended)
		<-ended
		if len(w.events) > 0 || w.end != EndLost {
			t.Errorf("told %q, ended as %q", w.events, w.end)
		}
	})
}

// TestChangesInDoubt: in a doubt the hub asks again after a pause, however many changes come
// meanwhile, and no more once nobody waits for the answer.
func TestChangesInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, on := newCluster(t, 1), standing{}
		ended := make(chan time.Time, 1)
		w := c.clients(1, "n1", Options{Defined: on.stands})[0]
		idle := c.clients(1, "n2", Options{Defined: on.stands})[0]
		w.follow(t, ended)
		idle.take(t.Context())
		synctest.Wait()
		before := on.asked.Load()
		on.doubtful.Store(true)
		for range 100 {
			c.add("n1")
			synctest.Wait()
		}
		if asked := on.asked.Load() - before; asked > 2 { // the client, and the hub
			t.Errorf("asked %d times at once", asked)
		}
		time.Sleep(definedWait + longestEnd + time.Second)
		<-ended
		before = on.asked.Load()
		for range 100 {
			c.add("n1")
			time.Sleep(time.Second)
		}
		if asked := on.asked.Load() - before; asked > 100 { // once for each change
			t.Errorf("asked %d times when nobody waits", asked)
		}
		on.doubtful.Store(false)
		c.add("n2")
		synctest.Wait()
		if !idle.take(t.Context()) {
			t.Error("the other is told nothing after the doubt")
		}
	})
}

// TestNothingPinned: what is no longer in the span is in memory no more, though a client was told
// of it that goes on.
func TestNothingPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { testNothingPinned(t) })
}

func testNothingPinned(t *testing.T) {
	c := newCluster(t, 1)
	w := c.watch(index.Query{}, Options{After: c.span.To})
	pinned := func() weak.Pointer[index.Object] {
		o := c.object("n1", "x", "1", "", 11)
		c.state.Set(o)
		c.change(11, index.Change{After: o})
		c.add("n2")
		return weak.Make(o)
	}()
	synctest.Wait()
	if !w.take(t.Context()) || len(w.events) != 2 {
		t.Fatalf("told %q", w.events)
	}
	c.state, c.log = index.NewTree(true), nil
	c.span = Span{From: 12, To: 12}
	c.hub.Publish(c.span)
	synctest.Wait()
	runtime.GC()
	if pinned.Value() != nil {
		t.Error("the object is in memory")
	}
}

// TestToldBeforeItIsDispatched: a client that is told a change before the hub has looked whom it is for is
// not told it again.
func TestToldBeforeItIsDispatched(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{}, Options{After: c.span.To}) // it looks by itself when it begins
		c.hub.mu.Lock()
		c.add("n1")
		c.hub.tellable.Store(c.hub.published.Load())
		if !w.take(t.Context()) || len(w.events) != 1 {
			t.Errorf("told %q", w.events)
		}
		c.hub.mu.Unlock()
		synctest.Wait()
		if w.take(t.Context()) {
			t.Errorf("told again: %q", w.events)
		}
	})
}

// inDoubt is a client of n1 that has been told all there is, in a doubt that has just begun.
func inDoubt(t *testing.T) (*cluster, *standing, *client) {
	t.Helper()
	c, on := newCluster(t, 1), &standing{}
	w := c.clients(1, "n1", Options{Defined: on.stands})[0]
	w.take(t.Context())
	on.doubtful.Store(true)
	return c, on, w
}

// TestClearedWhileItLooks: a client that finds that it may not be told a change yet is woken when it may be
// told it by then.
func TestClearedWhileItLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, on, w := inDoubt(t)
		c.add("n1")
		synctest.Wait()
		w.Wait(t.Context())
		w.looking.Store(true) // as Take does
		due, span := w.due.Swap(0), c.hub.tellable.Load()
		time.Sleep(2 * askPause)
		on.doubtful.Store(false)
		time.Sleep(2 * askPause)
		if w.replay(&Batch{}, span, due); len(w.wake) == 0 {
			t.Error("nobody wakes it")
		}
		if !w.take(t.Context()) || len(w.events) != 1 {
			t.Errorf("told %q", w.events)
		}
	})
}

// TestTightMemoryInDoubt: what is cut from the history before anybody has looked at it is not told without
// the question whether it stands.
func TestTightMemoryInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, w := inDoubt(t)
		c.add("n1")
		c.trim(1)
		c.add("n1")
		c.trim(1)
		synctest.Wait()
		if w.take(t.Context()) {
			t.Errorf("told %q", w.events)
		}
	})
}

// TestBeginsBeforeItIsDispatched: a client that begins while a change comes, and looks before the hub does,
// is woken for it.
func TestBeginsBeforeItIsDispatched(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.watch(index.Query{}, Options{After: c.span.To})
		synctest.Wait()
		w := c.watch(index.Query{}, Options{After: c.span.To})
		c.hub.mu.Lock()
		c.add("n1")
		if w.take(t.Context()) {
			t.Errorf("told before it is tellable: %q", w.events)
		}
		c.hub.mu.Unlock()
		synctest.Wait()
		if len(w.wake) == 0 {
			t.Error("nobody wakes it")
		}
		if !w.take(t.Context()) || len(w.events) != 1 {
			t.Errorf("told %q", w.events)
		}
	})
}

// TestBeginsBeforeItIsClear: a client that begins when a change that nobody waited for is about to be cleared,
// and looks before it is, is woken for it.
func TestBeginsBeforeItIsClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, on, gate := newCluster(t, 1), &standing{}, make(chan struct{})
		asks := func() bool {
			is := on.stands()
			if is && c.hub.dispatched.Load() > c.hub.tellable.Load().To {
				<-gate
			}
			return is
		}
		c.clients(1, "n1", Options{Defined: asks})[0].take(t.Context())
		on.doubtful.Store(true)
		c.add("n2")
		synctest.Wait()
		on.doubtful.Store(false)
		w := c.watch(index.Query{Scope: index.Scope{Namespace: "n2"}}, Options{After: c.span.To - 1, Defined: asks})
		if w.take(t.Context()) {
			t.Errorf("told before it is tellable: %q", w.events)
		}
		close(gate)
		synctest.Wait()
		if len(w.wake) == 0 {
			t.Error("nobody wakes it")
		}
		if !w.take(t.Context()) || len(w.events) != 1 {
			t.Errorf("told %q", w.events)
		}
	})
}

// TestBusyInDoubt: changes that come all the time do not put off the question whether they may be told.
func TestBusyInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, on, w := inDoubt(t)
		c.add("n1")
		synctest.Wait()
		on.doubtful.Store(false)
		for range 6 {
			time.Sleep(askPause / 2)
			c.add("n1")
			synctest.Wait()
		}
		if !w.take(t.Context()) || len(w.events) < 4 {
			t.Errorf("told %d events", len(w.events))
		}
	})
}

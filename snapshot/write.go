package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// change is one event of a watch.
type change struct {
	kind     string // wire.Added, wire.Modified or wire.Deleted
	key      string
	revision uint64
	object   *index.Object // nil for a deletion
	// gone is the object of a deletion as the event tells it, if watches are served.
	gone *index.Object
}

// wentBackError is a revision below one that was seen before.
type wentBackError struct{ highest, now uint64 }

func (e wentBackError) Error() string {
	return fmt.Sprintf("the upstream's revision went back from %d to %d: its storage was restored or replaced", e.highest, e.now)
}

var errFull = errors.New("the byte bound leaves no room for this collection")

// apply executes the change on a state and returns the object that it replaces or removes.
func (ch change) apply(state index.Tree) (*index.Object, error) {
	if ch.kind == wire.Deleted {
		old := state.Remove(ch.key)
		if old == nil {
			return nil, wire.Inconsistent("revision %d deletes an object that is not there", ch.revision)
		}
		return old, nil
	}
	old := state.Set(ch.object)
	switch {
	case ch.kind == wire.Added && old != nil:
		return nil, wire.Inconsistent("revision %d adds an object that is there already", ch.revision)
	case ch.kind == wire.Modified && old == nil:
		return nil, wire.Inconsistent("revision %d modifies an object that is not there", ch.revision)
	}
	return old, nil
}

// open begins a new span with a complete state at rev. The state's size is on the budget's account
// already. The state is as new as the moment when it was asked for (asked): reading it may have taken
// minutes. Earlier spans stay if the new state agrees with them. Form is how events are written, nil
// if no watches are served.
func (c *Collection) open(state index.Tree, size int64, rev uint64, frame *wire.Frame, form *watch.Form, asked freshness.Probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		c.budget.Add(-size)
		return
	}
	old := c.view.Load()
	if n := len(old.spans); n == 0 {
		c.marks = nil // their revisions may be those of another past, and higher than what comes
	} else {
		to := old.spans[n-1].To
		if to >= rev || !old.frame.Equal(frame) || !agrees(old.stateAt(to).tree, to, state) {
			c.forgetLocked()
			old = c.view.Load()
		}
	}
	now := time.Now()
	c.highest, c.goals = max(c.highest, rev), nil
	c.confirmed, c.resumeAt = rev, resumePoint{}
	c.versions.Append(index.Version{Revision: rev, Tree: state})
	c.marks = append(c.marks, mark{at: now, revision: rev})
	c.accounts = append(c.accounts, size)
	c.publishLocked(&View{
		spans:   append(slices.Clone(old.spans), Span{From: rev, To: rev}),
		heard:   asked,
		newest:  state,
		frame:   frame,
		watches: c.newWatches(form, rev),
		streams: true,
	})
}

// agrees reports whether a state can follow the state before, of revision to: an object that
// was last changed at or before to must have been there then, in the same bytes. If one was
// not, there are two causes. Either the storage has another past than the one that is kept: etcd
// was restored from an older state, and then written to until its revision passed ours. Or the
// upstream writes the same objects differently now: another schema, another version.
func agrees(before index.Tree, to uint64, state index.Tree) bool {
	ok := true
	state.Ascend("", "", func(o *index.Object) bool {
		if o.Revision <= to {
			was, found := before.Get(o.Key)
			ok = found && was.Revision == o.Revision && bytes.Equal(was.Bytes, o.Bytes)
		}
		return ok
	})
	return ok
}

// apply advances the live span by one change. After errFull it has, but all does not fit.
func (c *Collection) apply(ch change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.absence != reason.None {
		return wire.Inconsistent("a change outside a span")
	}
	if to := v.to(); ch.revision <= to {
		return wire.Inconsistent("a change at revision %d comes after revision %d", ch.revision, to)
	}
	state := v.newest.Clone()
	old, err := ch.apply(state)
	if err != nil {
		return err
	}
	size := int64(versionOverhead)
	next := index.Version{Revision: ch.revision, Tree: state, Superseded: size}
	if old != nil {
		next.Superseded += old.Size()
	}
	if ch.object != nil {
		size += ch.object.Size()
	}
	if ch.gone != nil {
		size += ch.gone.Size()
		next.Superseded += ch.gone.Size()
	}
	if v.watches != nil {
		next.Change = index.Change{Before: old, After: cmp.Or(ch.object, ch.gone), Deleted: ch.kind == wire.Deleted}
	}
	c.versions.Append(next)
	c.accountLocked(len(c.accounts)-1, size)
	if ch.kind == wire.Deleted {
		c.resumeAt = c.resumeAt.then(deletion{ch.revision, ch.key})
	} else {
		c.resumeAt = resumePoint{object: ch.object}
	}
	c.confirmed = ch.revision
	c.advanceLocked(v, ch.revision, state)
	if c.budget.Full() {
		c.shortenLocked()
		if c.budget.Full() {
			return errFull
		}
	}
	return nil
}

// progress advances the live span to rev, which a bookmark has proved.
func (c *Collection) progress(rev uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.absence != reason.None {
		return wire.Inconsistent("a bookmark outside a span")
	}
	if to := v.to(); rev < to {
		return wentBackError{highest: to, now: rev}
	}
	c.confirmed = rev
	c.advanceLocked(v, rev, v.newest)
	return nil
}

// advanceLocked publishes that the live span reaches rev with this state, and is as new as the last
// of the goals that it has reached. Nothing else says how new it is: an event or a bookmark may be
// old when it comes, because the upstream lags, or because the connection or this process was
// suspended.
func (c *Collection) advanceLocked(v *View, rev uint64, state index.Tree) {
	c.highest = max(c.highest, rev)
	c.markLocked(time.Now(), rev)
	spans := slices.Clone(v.spans)
	spans[len(spans)-1].To = rev
	heard, reached := v.heard, 0
	for reached < len(c.goals) && c.goals[reached].revision <= rev {
		if goal := c.goals[reached]; goal.Number > heard.Number {
			heard = goal.Probe
		}
		reached++
	}
	c.goals = slices.Delete(c.goals, 0, reached)
	c.publishLocked(v.with(func(v *View) { v.spans, v.heard, v.newest = spans, heard, state }))
}

// reframe replaces the frame of the live span by one that also knows the form of items.
func (c *Collection) reframe(frame *wire.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.absence != reason.None {
		return
	}
	if v.watches != nil {
		v.watches.Reframe(frame)
	}
	c.publishLocked(v.with(func(v *View) { v.frame = frame }))
}

// follows notes whether a stream is being read that goes on from the live span.
func (c *Collection) follows(stream bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.absence == reason.None && v.streams != stream {
		c.publishLocked(v.with(func(v *View) { v.streams = stream }))
	}
}

// floor is the revision below which no read of the upstream may fall that begins now.
func (c *Collection) floor() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest
}

// observe takes in the revision that a read of the upstream gave, and the floor from before
// that read.
func (c *Collection) observe(rev, floor uint64) error {
	if rev < floor {
		return wentBackError{highest: floor, now: rev}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest, rev)
	return nil
}

// maxGoals is how many goals are kept at most. With more, the last two become one: the state is as
// new as the second when it comes there.
const maxGoals = 256

// expect records that the upstream had reached p.revision. It reports whether the live span has
// reached it too, and that is confirmed; if not, the span counts as that new once it is. The caller
// follows a stream that it knows to belong to the span.
func (c *Collection) expect(p probed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.absence != reason.None {
		return false
	}
	next := goal{p.Probe, p.revision}
	if v.to() >= p.revision && c.confirmed >= p.revision {
		c.goals = append(c.goals[:0], next) // those before it are lower
		c.advanceLocked(v, v.to(), v.newest)
		return true
	}
	if n := len(c.goals); n > 0 && (n == maxGoals || c.goals[n-1].revision == p.revision) {
		c.goals = c.goals[:n-1]
	}
	// What is older than the bound would not make the state any newer.
	c.goals = slices.DeleteFunc(c.goals, func(g goal) bool { return p.Sent.Sub(g.Sent) >= c.limits.Staleness })
	c.goals = append(c.goals, next)
	return false
}

// confirmedTo is how far the upstream has shown that it has the past of the live span.
func (c *Collection) confirmedTo() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.confirmed
}

// confirm says how far the upstream has shown that it has the past of the live span, when a stream
// is resumed.
func (c *Collection) confirm(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirmed = rev
}

// close ends the live span, if there is one: the newest state is to be loaded again. What is known
// of the past stays for as long as the history lasts.
func (c *Collection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return
	}
	v := c.view.Load()
	if v.absence == reason.None {
		c.closed = time.Now()
		c.marks = append(c.marks, mark{at: c.closed, revision: v.to()})
	}
	c.publishLocked(&View{absence: reason.Warming, spans: v.spans, heard: v.heard, frame: v.frame})
}

// closedSince is when the span before was closed of a collection that has no live one; zero if none
// is kept.
func (c *Collection) closedSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.absence == reason.None || len(v.spans) == 0 {
		return time.Time{}
	}
	return c.closed
}

// drop forgets everything, and says why nothing is known.
func (c *Collection) drop(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire drops everything for ever, whatever the feed may still bring.
func (c *Collection) retire(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return
	}
	c.retired = true
	c.dropLocked(why)
	c.publishLocked(&View{absence: why, retired: true})
}

func (c *Collection) dropLocked(why reason.Reason) {
	c.highest, c.goals = 0, nil
	c.forgetLocked()
	c.publishLocked(&View{absence: why})
}

// forgetLocked removes all spans. The caller publishes what is true instead.
func (c *Collection) forgetLocked() {
	c.epoch++
	c.versions = index.History{}
	c.marks = nil
	for i, bytes := range c.accounts {
		c.accountLocked(i, -bytes)
	}
	c.accounts = nil
	c.publishLocked(&View{absence: reason.Warming})
}

// publishLocked makes a view the current one.
func (c *Collection) publishLocked(v *View) {
	old := c.view.Load()
	v.versions, v.epoch = c.versions, c.epoch
	c.tellWatchesLocked(v, old)
	v.next, v.newer = make(chan struct{}), old.newer
	newer := v.heard != old.heard || v.absence != old.absence
	if newer {
		v.newer = make(chan struct{})
	}
	if old.absence == reason.None && v.absence != reason.None {
		c.spare.Store(spareLists)
	}
	c.view.Store(v)
	close(old.next)
	if newer {
		close(old.newer)
	}
}

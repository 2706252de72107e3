package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
)

// change is one event of a watch.
type change struct {
	kind     changeKind
	key      string
	revision uint64
	object   *Object // nil for a deletion
}

type changeKind byte

const (
	added changeKind = iota
	modified
	deleted
)

// poisonError is what a feed cannot say: the collection is not to be trusted any more.
type poisonError struct{ reason string }

func (e poisonError) Error() string { return "the feed contradicts itself: " + e.reason }

func poison(format string, args ...any) error {
	return poisonError{reason: fmt.Sprintf(format, args...)}
}

// wentBackError is a revision below one that was seen before.
type wentBackError struct{ highest, now uint64 }

func (e wentBackError) Error() string {
	return fmt.Sprintf("the upstream's revision went back from %d to %d: its storage was restored or replaced", e.highest, e.now)
}

var errFull = errors.New("the byte bound leaves no room for this collection")

// apply executes the change on a state and returns the object that it replaces or removes.
func (ch change) apply(state tree) (*Object, error) {
	if ch.kind == deleted {
		old := state.remove(ch.key)
		if old == nil {
			return nil, poison("revision %d deletes an object that is not there", ch.revision)
		}
		return old, nil
	}
	old := state.set(ch.object)
	switch {
	case ch.kind == added && old != nil:
		return nil, poison("revision %d adds an object that is there already", ch.revision)
	case ch.kind == modified && old == nil:
		return nil, poison("revision %d modifies an object that is not there", ch.revision)
	}
	return old, nil
}

// open begins a new span with a complete state at rev, whose size is on the budget's account
// already, and which is as new as the moment it was asked for: to read it may have taken minutes.
// Earlier spans stay if the new state agrees with them.
func (c *Collection) open(state tree, size int64, rev uint64, frame *Frame, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		c.budget.add(-size)
		return
	}
	old := c.view.Load()
	if n := len(old.spans); n == 0 {
		c.marks = nil // their revisions may be those of another past, and higher than what comes
	} else {
		to := old.spans[n-1].To
		if to >= rev || !old.frame.equal(frame) || !agrees(old.stateAt(to).tree, to, state) {
			c.forgetLocked()
			old = c.view.Load()
		}
	}
	now := time.Now()
	c.highest, c.behind = max(c.highest, rev), mark{}
	c.last = seamOf(state)
	c.versions.append(version{revision: rev, tree: state})
	c.marks = append(c.marks, mark{at: now, revision: rev})
	c.accounts = append(c.accounts, size)
	c.publishLocked(&View{
		spans:  append(slices.Clone(old.spans), Span{From: rev, To: rev}),
		heard:  asked,
		newest: state,
		frame:  frame,
	})
}

// agrees reports whether a state can follow the state before, of revision to: an object that
// was last changed at or before to must have been there then, in the same bytes. If one was
// not, the storage has another past than the one that is kept (an etcd that was restored from
// an older state and written to until its revision passed ours), or the upstream writes the
// same objects differently now (another schema, another version).
func agrees(before tree, to uint64, state tree) bool {
	ok := true
	state.ascend("", "", func(o *Object) bool {
		if o.Revision <= to {
			was, found := before.get(o.Key)
			ok = found && was.Revision == o.Revision && bytes.Equal(was.Bytes, o.Bytes)
		}
		return ok
	})
	return ok
}

// apply advances the live span by one change.
func (c *Collection) apply(ch change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.absence != Known {
		return poison("a change outside a span")
	}
	if to := v.to(); ch.revision <= to {
		return poison("a change at revision %d comes after revision %d", ch.revision, to)
	}
	state := v.newest.clone()
	old, err := ch.apply(state)
	if err != nil {
		return err
	}
	size := int64(versionOverhead)
	next := version{revision: ch.revision, tree: state, superseded: size}
	if old != nil {
		next.superseded += old.size()
	}
	if ch.object != nil {
		size += ch.object.size()
	}
	c.versions.append(next)
	c.accountLocked(len(c.accounts)-1, size)
	c.last = seam{revision: ch.revision, key: ch.key, object: ch.object}
	now := time.Now()
	c.advanceLocked(v, ch.revision, state, c.heardLocked(v, ch.revision, now), now)
	if c.budget.full() {
		c.shortenLocked()
		if c.budget.full() {
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
	if v.absence != Known {
		return poison("a bookmark outside a span")
	}
	if to := v.to(); rev < to {
		return wentBackError{highest: to, now: rev}
	}
	now := time.Now()
	c.advanceLocked(v, rev, v.newest, c.heardLocked(v, rev, now), now)
	return nil
}

// heardLocked is when the upstream has been heard of last, if its stream tells of rev now. That is
// a sign of life for as long as one comes after the other within the bound; but not before the span
// has come to where the upstream is known to have been. After a longer silence (of the upstream, of
// the way to it, or since this process stood still) what comes may have waited for as long: only a
// probe says how far the upstream is, and so what is new.
func (c *Collection) heardLocked(v *View, rev uint64, now time.Time) time.Time {
	if rev < c.behind.revision || now.Sub(c.touchedLocked(v)) >= c.limits.Silence {
		return v.heard
	}
	return now
}

// doubtful reports whether what the stream tells is no sign of life before a probe has said how far
// the upstream is.
func (c *Collection) doubtful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.touchedLocked(c.view.Load())) >= c.limits.Silence
}

// touchedLocked is when the upstream is known to have been in touch.
func (c *Collection) touchedLocked(v *View) time.Time {
	if c.behind.at.After(v.heard) {
		return c.behind.at
	}
	return v.heard
}

// advanceLocked publishes that the live span reaches rev with this state, and when the upstream was
// heard of.
func (c *Collection) advanceLocked(v *View, rev uint64, state tree, heard, now time.Time) {
	c.highest = max(c.highest, rev)
	c.markLocked(now, rev)
	spans := slices.Clone(v.spans)
	spans[len(spans)-1].To = rev
	c.publishLocked(&View{spans: spans, heard: heard, newest: state, frame: v.frame})
}

// catchUp says that a stream begins, or is resumed, while the upstream is at rev, which it was when it
// was asked for it: the newest state is as old as it was until the span has come that far.
func (c *Collection) catchUp(rev uint64, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = mark{at: asked, revision: rev}
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

// covers reports whether the live span has reached a revision that a read of the upstream gave. If
// so, the read was a sign of life, of when it was asked for. If not, and nothing was heard for longer
// than the bound, the stream has to come that far before it is one. The caller follows a stream that
// it knows to belong to the span.
func (c *Collection) covers(rev uint64, asked time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, now := c.view.Load(), time.Now()
	if v.absence != Known {
		return false
	}
	if v.to() < rev {
		// Where the stream is in touch, but slow, a later probe must not set it a later goal.
		if now.Sub(c.touchedLocked(v)) >= c.limits.Silence {
			c.behind = mark{at: asked, revision: rev}
		}
		return false
	}
	heard := v.heard
	if asked.After(heard) {
		heard = asked
	}
	c.advanceLocked(v, v.to(), v.newest, heard, now)
	return true
}

// close ends the live span, if there is one, and says why there is no newest state. What is
// known of the past stays for as long as the history lasts.
func (c *Collection) close(why Absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return
	}
	v := c.view.Load()
	if v.absence == Known {
		c.marks = append(c.marks, mark{at: time.Now(), revision: v.to()})
	}
	c.publishLocked(&View{absence: why, spans: v.spans, heard: v.heard, frame: v.frame})
}

// drop forgets everything, and says why nothing is known.
func (c *Collection) drop(why Absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire drops everything for ever, whatever the feed may still bring.
func (c *Collection) retire(why Absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return
	}
	c.retired = true
	c.dropLocked(why)
	c.publishLocked(&View{absence: why, retired: true})
}

func (c *Collection) dropLocked(why Absence) {
	c.highest, c.behind = 0, mark{}
	c.forgetLocked()
	c.publishLocked(&View{absence: why})
}

// forgetLocked removes all spans. The caller publishes what is true instead.
func (c *Collection) forgetLocked() {
	c.versions = history{}
	c.marks = nil
	for i, bytes := range c.accounts {
		c.accountLocked(i, -bytes)
	}
	c.accounts = nil
	c.publishLocked(&View{absence: Warming})
}

// publishLocked makes a view the current one.
func (c *Collection) publishLocked(v *View) {
	v.versions = c.versions
	v.next = make(chan struct{})
	close(c.view.Swap(v).next)
}

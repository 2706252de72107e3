package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// resumePoint is the newest event of the live span that is no deletion. If it is in doubt whether the
// upstream is still the same, the next watch is opened one revision before it, so that the upstream must
// begin by sending it again, and after it the deletions that followed, and nothing else: that proves
// that both have the same past. None of these would prove it:
//
//   - a deletion: another past may have deleted the same object at the same revision
//   - the newest object of the state that opened the span: another past may have that, and still have an
//     object that was deleted before the state was loaded
//   - a watch from the span's end: etcd may have been restored from an older state and written to until
//     its revision had passed ours
type resumePoint struct {
	object *index.Object // nil if there was no such event, or if more than manyDeletions followed
	// deletions are those that followed; without an object, only the last one.
	deletions []deletion
}

// manyDeletions is how many deletions after it a resume point has at most.
const manyDeletions = 100

// deletion is that of an object.
type deletion struct {
	revision uint64
	key      string
}

// then returns the resume point after one more deletion.
func (p resumePoint) then(d deletion) resumePoint {
	if p.object == nil || len(p.deletions) == manyDeletions {
		return resumePoint{deletions: []deletion{d}}
	}
	p.deletions = append(p.deletions, d)
	return p
}

// resumeSilence is how long a resumed watch may be silent before it is given up and opened again. An
// upstream that has the resume point sends it; one that has another past sends a bookmark instead.
const resumeSilence = 2 * freshness.BookmarkEvery

// errUnproven ends a span if the upstream cannot show that it still has the same past. Everything
// that is known is then dropped.
var errUnproven = errors.New("the upstream's past could not be recognised")

// resumePoint returns that of the live span.
func (c *Collection) resumePoint() resumePoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumeAt
}

// repeats takes in what a stream sends at a revision: ch, or a bookmark if ch is nil. It reports whether
// ch is the next of the deletions after the resume point, all of which a resumed stream must send again.
func (c *Collection) repeats(rev uint64, ch *change) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.nextDeletionLocked()
	switch {
	case next == nil || rev < next.revision:
		return false, nil
	case ch != nil && ch.kind == wire.Deleted && *next == (deletion{rev, ch.key}):
		c.confirmed = rev
		return true, nil
	}
	return false, wire.Inconsistent("a resumed watch leaves out the deletion at revision %d: the upstream has another past", next.revision)
}

// nextDeletionLocked returns the first deletion after the resume point that the upstream has not shown
// yet to be in its past; nil if there is none.
func (c *Collection) nextDeletionLocked() *deletion {
	all := c.resumeAt.deletions
	i := sort.Search(len(all), func(i int) bool { return all[i].revision > c.confirmed })
	if i == len(all) {
		return nil
	}
	return &all[i]
}

// meet waits for the first event of a resumed stream, which must be the resume point's object, with the
// same bytes. That nothing comes proves nothing, and costs only time.
func (f *feed) meet(ctx context.Context, s *stream, want *index.Object) error {
	timer := time.NewTimer(resumeSilence)
	defer timer.Stop()
	select {
	case ev, ok := <-s.Events:
		if !ok {
			return s.Err
		}
		other := wire.Inconsistent("a resumed watch does not begin with the change at revision %d: the upstream has another past", want.Revision)
		if ev.Kind == wire.Bookmarked {
			return other
		}
		got, err := f.change(f.frame, ev)
		if err != nil {
			return err
		}
		if got.revision != want.Revision || got.key != want.Key || got.object == nil || !bytes.Equal(got.object.Bytes, want.Bytes) {
			return other
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("a resumed watch was silent for %v", resumeSilence)
	case <-ctx.Done():
		return ctx.Err()
	}
}

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// resumePoint is the newest change that the live span knows: the last event, or else the newest
// object of the state that opened it. If it is in doubt whether the upstream is still the same, the
// next watch is opened one revision before it, so that the upstream must begin by sending it again:
// that proves that both have the same past. (A deletion does not: another past may have deleted the
// same object at the same revision.) A watch from the span's end proves nothing, if etcd was restored
// from an older state and written to until its revision had passed ours.
type resumePoint struct {
	revision uint64
	key      string
	object   *index.Object // nil for a deletion
}

// resumeSilence is how long a resumed watch may be silent before it is given up and opened again. An
// upstream that has the resume point sends it; one that has another past sends a bookmark instead.
const resumeSilence = 2 * freshness.BookmarkEvery

// errUnproven ends a span if the upstream cannot show that it still has the same past. Everything
// that is known is then dropped.
var errUnproven = errors.New("the upstream's past could not be recognised")

// resumePointOf returns the resume point of a state that was loaded as a whole: its newest object. It
// is zero if the state is empty.
func resumePointOf(state index.Tree) resumePoint {
	var newest *index.Object
	state.Ascend("", "", func(o *index.Object) bool {
		if newest == nil || o.Revision > newest.Revision {
			newest = o
		}
		return true
	})
	if newest == nil {
		return resumePoint{}
	}
	return resumePoint{revision: newest.Revision, key: newest.Key, object: newest}
}

// resumePoint returns the newest change of the live span.
func (c *Collection) resumePoint() resumePoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newestChange
}

// meet waits for the first event of a resumed stream, which must be the resume point, with the same
// bytes. That nothing comes proves nothing, and costs only time.
func (f *feed) meet(ctx context.Context, s *stream, want resumePoint) error {
	timer := time.NewTimer(resumeSilence)
	defer timer.Stop()
	select {
	case ev, ok := <-s.Events:
		if !ok {
			return s.Err
		}
		other := wire.Inconsistent("a resumed watch does not begin with the change at revision %d: the upstream has another past", want.revision)
		if ev.Kind == wire.Bookmarked {
			return other
		}
		got, err := f.change(f.frame, ev)
		if err != nil {
			return err
		}
		if got.revision != want.revision || got.key != want.key || got.object == nil || !bytes.Equal(got.object.Bytes, want.object.Bytes) {
			return other
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("a resumed watch was silent for %v", resumeSilence)
	case <-ctx.Done():
		return ctx.Err()
	}
}

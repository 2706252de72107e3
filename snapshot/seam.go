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

// seam is the newest change that the live span knows: the last event, or else the newest object
// of the state that opened it. After the connection was in doubt, the watch that goes on from
// the span is opened one revision before it, so that the upstream must begin by telling it
// again: that proves that both have the same past. A watch from the span's end proves nothing,
// if etcd was restored from an older state and written to until its revision had passed ours.
type seam struct {
	revision uint64
	key      string
	object   *index.Object // nil for a deletion
}

// seamSilence is how long a resumed watch may be silent before it is given up and opened again. An
// upstream that has the seam tells it, or, if it has another past, a bookmark in its place.
const seamSilence = 2 * freshness.BookmarkEvery

// errUnproven ends a span that cannot show that the upstream still has the same past. All that
// was known goes with it.
var errUnproven = errors.New("the upstream's past could not be recognised")

// seamOf is the seam of a state that was loaded as a whole; the zero seam if it is empty.
func seamOf(state index.Tree) seam {
	var newest *index.Object
	state.Ascend("", "", func(o *index.Object) bool {
		if newest == nil || o.Revision > newest.Revision {
			newest = o
		}
		return true
	})
	if newest == nil {
		return seam{}
	}
	return seam{revision: newest.Revision, key: newest.Key, object: newest}
}

// seam returns the newest change of the live span.
func (c *Collection) seam() seam {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// meet waits for the first event of a resumed stream, which must be the seam to the last byte.
// Silence proves nothing, and costs nothing but time.
func (f *feed) meet(ctx context.Context, frame *wire.Frame, s *stream, want seam) error {
	timer := time.NewTimer(seamSilence)
	defer timer.Stop()
	select {
	case ev, ok := <-s.events:
		if !ok {
			return s.err
		}
		other := wire.Inconsistent("a resumed watch does not begin with the change at revision %d: the upstream has another past", want.revision)
		if ev.Kind == wire.Bookmarked {
			return other
		}
		got, err := f.change(frame, ev)
		if err != nil {
			return err
		}
		if got.revision != want.revision || got.key != want.key || (got.object == nil) != (want.object == nil) ||
			got.object != nil && !bytes.Equal(got.object.Bytes, want.object.Bytes) {
			return other
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("a resumed watch was silent for %v", seamSilence)
	case <-ctx.Done():
		return ctx.Err()
	}
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// reader reads one stream for a feed. It repeats two steps:
//
//  1. doDueSteps does the steps that are due, and sets the alarm for the next one.
//  2. handleNext waits until one thing happens, and handles it: an event comes, a call ends, a request wakes the feed, or the
//     alarm fires.
//
// Beside the stream, the reader makes two kinds of calls to the upstream. A probe asks for the upstream's revision. A progress
// watch is a short watch that ends at its first bookmark. [source.Freshness] decides when to make a call. The reader tells it
// what happens.
type reader struct {
	*feed
	stream *source.Stream
	// calls are the calls in flight, at most one of each kind.
	calls       sync.WaitGroup
	cancelCalls context.CancelFunc
	// endedCalls has a function for each call that has ended, which handles the call's result. The reader runs the function in
	// its own goroutine, so that only this goroutine changes the feed.
	endedCalls chan func() error
	// pendingProgress is what the last progress watch has seen, until the stream has sent the same changes; zero if there is
	// none.
	pendingProgress progress
	// alarm fires when the next step is due.
	alarm *time.Timer
}

// maxCalls is the largest number of calls in flight: a probe and a progress watch.
const maxCalls = 2

// read applies the events of the stream until the stream ends or must be left. It returns nil if the stream ended at its
// timeout.
func (f *feed) read(ctx context.Context, s *source.Stream) error {
	f.collection.setStreaming(true)
	ctx, cancelCalls := context.WithCancel(ctx)
	r := &reader{
		feed:        f,
		stream:      s,
		cancelCalls: cancelCalls,
		endedCalls:  make(chan func() error, maxCalls),
		alarm:       time.NewTimer(0),
	}
	defer r.stop()
	if f.lacksBookmark() { // the stream's first bookmark may take a minute, and that of a progress watch about a second
		r.openProgressWatch(ctx)
	}
	for {
		if err := r.doDueSteps(ctx); err != nil {
			return err
		}
		if isOver, err := r.handleNext(ctx); isOver || err != nil {
			return err
		}
	}
}

// stop records that no stream is read any more, and cancels the calls in flight.
func (r *reader) stop() {
	r.alarm.Stop()
	r.collection.setStreaming(false)
	r.cancelCalls()
	r.calls.Wait() // nobody handles the calls' results any more; endedCalls has room for them
}

// errStreamLeft says that the feed stops reading a stream that has not ended ([source.LeaveStream]).
var errStreamLeft = errors.New("the stream is silent, or may be of another timeline than the answers")

// doDueSteps applies what the last progress watch has seen, starts the calls that are due, and sets the alarm for the next
// step. After an error the stream must not be read any more.
func (r *reader) doDueSteps(ctx context.Context) (err error) {
	c := r.collection
	r.pendingProgress, err = c.applyProgress(r.pendingProgress)
	if err != nil {
		return err
	}
	for { // source.Wait ends the loop, and source.LeaveStream with an error
		now := time.Now()
		r.recordProof()
		r.freshness.ProbeAwaited(now, c.awaitedProbe.Load())
		next := r.freshness.Next(now, c.view.Load().provenBy)
		switch next.Step {
		case source.LeaveStream:
			return errStreamLeft
		case source.SendProbe:
			r.sendProbe(ctx)
		case source.OpenProgressWatch:
			r.openProgressWatch(ctx)
		case source.Wait:
			r.alarm.Stop()
			if !next.Wake.IsZero() {
				r.alarm.Reset(time.Until(next.Wake))
			}
			c.publishFreshness(r.freshness)
			return nil
		}
	}
}

// sendProbe starts a call that sends a probe. No other probe may be in flight.
func (r *reader) sendProbe(ctx context.Context) {
	r.freshness.ProbeSent(r.collection.shared.probes.Next())
	r.calls.Go(func() {
		revision, err := r.runProbe(ctx)
		r.endedCalls <- func() error { return r.handleProbe(revision, err) }
	})
}

// openProgressWatch starts a call that opens a progress watch. No other progress watch may be open.
func (r *reader) openProgressWatch(ctx context.Context) {
	after := r.collection.view.Load().To
	const noTarget = math.MaxUint64                      // the watch goes on to its bookmark
	ignoreEvent := func(wire.Event) error { return nil } // the stream sends the same events
	r.freshness.ProgressOpened()
	r.calls.Go(func() {
		seen, err := r.watchProgress(ctx, after, noTarget, ignoreEvent)
		r.endedCalls <- func() error { return r.handleProgress(seen, err) }
	})
}

// handleNext waits until something happens, and handles it. isOver reports whether the stream has ended at its timeout. After
// an error the stream must not be read any more.
func (r *reader) handleNext(ctx context.Context) (isOver bool, err error) {
	select {
	case ev, ok := <-r.stream.Events:
		if ok {
			r.freshness.StreamSentEvent(ev.ReadAt)
			return false, r.applyEvent(ctx, ev)
		}
		if r.stream.EndedAtTimeout(time.Now()) {
			return true, nil
		}
		return false, r.stream.Err
	case handleResult := <-r.endedCalls:
		return false, handleResult()
	case <-r.collection.reloadRequests:
		return false, errReloadRequested
	case <-r.collection.newWaiters: // only wakes doDueSteps, which reads awaitedProbe
	case <-r.collection.probeRequests:
		r.freshness.ProbeRequested()
	case <-r.alarm.C: // only wakes doDueSteps, which does what is due
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// applyEvent advances the state by one event of the stream. After an error the stream must not be read any more.
func (f *feed) applyEvent(ctx context.Context, ev wire.Event) error {
	f.checkEventForm(ev)
	if ev.Type == wire.Bookmarked {
		f.freshness.StreamSentBookmark(ev.ReadAt)
		if ev.Meta.Revision < f.collection.view.Load().To {
			f.freshness.ProbeRequested() // the probe shows whether the API server lags, or its storage was restored
			return nil
		}
		return f.collection.applyBookmark(ev.Meta.Revision)
	}
	if err := f.learnItemForm(ctx, ev); err != nil {
		return err
	}
	change, err := f.newChange(f.envelope, ev)
	if err != nil {
		return err
	}
	return f.collection.applyChange(change)
}

// newChange returns the change of the state that an event describes. The event must not be a bookmark. newChange returns
// errFirstObject if the envelope does not know yet how a list writes an object. The change may share the event's memory.
func (f *feed) newChange(envelope *wire.Envelope, ev wire.Event) (stateChange, error) {
	itemForm := envelope.ItemForm
	if !itemForm.Known {
		return stateChange{}, errFirstObject
	}
	m := ev.Meta
	if m.APIVersion != itemForm.APIVersion || m.Kind != itemForm.Kind {
		return stateChange{}, wire.Inconsistent("an event with a %s %s", m.APIVersion, m.Kind)
	}
	key, err := f.source.Key(m)
	if err != nil {
		return stateChange{}, err
	}
	change := stateChange{kind: ev.Type, key: key, revision: m.Revision}
	if ev.Type == wire.Deleted && !f.servesWatches {
		return change, nil // only watches need the deleted object
	}
	item, err := f.source.Encoding().ItemOf(itemForm, ev.Object)
	if err != nil {
		return stateChange{}, err
	}
	if ev.Type == wire.Deleted {
		const noNumber = 0 // only objects in a tree need a number
		change.deleted = index.NewObject(noNumber, key, m.Revision, item)
		return change, nil
	}
	change.object, err = f.newObject(envelope, key, m, item)
	return change, err
}

// newObject returns an object with the bytes of an item, whose memory it shares. It takes the collection's next object number.
func (f *feed) newObject(envelope *wire.Envelope, key string, m wire.ObjectMeta, item []byte) (*index.Object, error) {
	values, err := envelope.Paths.ReadValues(f.source.Encoding(), item)
	if err != nil {
		// The value may be of an earlier schema. How the upstream's selectors read it is unknown.
		return nil, fmt.Errorf("%w: the fields of an object cannot be read: %w", wire.ErrForm, err)
	}
	f.collection.lastObjectNumber++
	o := index.NewObject(f.collection.lastObjectNumber, key, m.Revision, item)
	o.Labels, o.Fields = m.Labels, values
	return o, nil
}

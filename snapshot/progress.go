package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// progressTimeout bounds a progress watch, including the time until it is answered.
const progressTimeout = 15 * time.Second

// errNoBookmark says that a progress watch has lasted until its timeout without a bookmark.
var errNoBookmark = errors.New("a progress watch ended without a bookmark")

// progress is what a progress watch has shown: all changes after the revision from, up to revision.
type progress struct {
	from, revision uint64
	// changes are the revisions of these changes, in order.
	changes []uint64
}

// last returns the revision of the last change, or the one at which the watch began.
func (p progress) last() uint64 {
	if n := len(p.changes); n > 0 {
		return p.changes[n-1]
	}
	return p.from
}

// watchProgress opens a progress watch from a revision on. It reads the watch up to its first bookmark, or up to the
// first change after the revision until, which shows that all changes up to until were told. It calls take, unless
// that is nil, with each change up to until.
func (f *feed) watchProgress(ctx context.Context, from, until uint64, take func(wire.Event) error) (progress, error) {
	ctx, cancel := context.WithTimeout(source.With(ctx, source.ForProgress), progressTimeout)
	defer cancel()
	p := progress{from: from}
	s, err := f.openWatch(ctx, from, source.ShortWatch)
	if err != nil {
		return p, err
	}
	defer s.Stop()
	for ev := range s.Events {
		switch rev := ev.Meta.Revision; {
		case rev < p.last():
			return p, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", from, rev, p.last())
		case ev.Type == wire.Bookmarked:
			f.checkForm(ev)
			p.revision = rev
			return p, nil
		case rev > until:
			p.revision = until
			return p, nil
		default:
			p.changes = append(p.changes, rev)
			if take == nil {
				continue
			}
			if err := take(ev); err != nil {
				return p, err
			}
		}
	}
	if s.InOrder(time.Now()) {
		return p, errNoBookmark
	}
	return p, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

const (
	// leaseWaits is how often proveTimeline looks again whether an API server has written its Lease since the stream was
	// last heard.
	leaseWaits = 2
	// leasePause is the time between two looks. An API server writes its Lease every ten seconds.
	leasePause = 6 * time.Second
)

// proveTimeline returns nil if the upstream has the timeline that is known here, and [errUnproven] if that cannot be
// shown. After etcd was restored from an older snapshot, and was written to until its revision had passed ours, a
// watch can begin at the interval's end as if nothing had happened. To restore etcd, API servers are stopped. So an
// API server that still runs proves the timeline; else the newest change must be told again.
func (f *feed) proveTimeline(ctx context.Context) error {
	to, heard := f.collection.view.Load().To, f.fresh.StreamSentAt()
	for wait := 0; f.sameTimeline != nil; wait++ {
		same, soon := f.sameTimeline(ctx, to, heard)
		if same {
			return nil
		}
		// Waiting helps only if there is no change to compare, and a Lease may still come.
		if last, _ := f.collection.view.Load().lastChange(); last != nil || !soon || wait == leaseWaits {
			break
		}
		if !clock.Sleep(ctx, leasePause) {
			return ctx.Err()
		}
	}
	return f.compareLastChange(ctx)
}

// compareLastChange compares the end of the known history with what a progress watch tells of it: the newest change
// that is no deletion, byte for byte, and the deletions that followed it. It returns nil if the watch tells just
// these, and [errUnproven] if it tells something else, or if all changes since the load were deletions: another
// timeline can have the same deletions. For example, if the interval ends at 120:
//
//	the last changes known         the watch from 114 tells   result
//	115 of a, deletions 117, 120   the same                   nil
//	115 of a, deletions 117, 120   115 of a, 117              errUnproven
//	115 of a, deletions 117, 120   115 of a with other bytes  errUnproven
func (f *feed) compareLastChange(ctx context.Context) error {
	v := f.collection.view.Load()
	last, revisions := v.lastChange()
	if last == nil {
		return errUnproven
	}
	var first wire.Event
	p, err := f.watchProgress(ctx, last.Revision-1, v.To, func(ev wire.Event) error {
		if first.Type == "" {
			first = ev
		}
		return nil
	})
	switch {
	// If the upstream sends no bookmarks, the watch has told all by its timeout.
	case err != nil && !errors.Is(err, errNoBookmark):
		return err
	case err == nil && p.revision < v.To:
		return fmt.Errorf("the upstream is at revision %d, and not at %d yet", p.revision, v.To)
	case !slices.Equal(p.changes, revisions):
		return errUnproven
	}
	again, err := f.stateChange(f.envelope, first)
	if err != nil || again.key != last.Key || again.object == nil || !bytes.Equal(again.object.Bytes, last.Bytes) {
		return errUnproven
	}
	return nil
}

const (
	// maxBridged bounds the changes between the known state and one that was loaded beside it over which clients' watches
	// go on: they are held in memory.
	maxBridged = 10_000
	// bridgeDeliveryTimeout bounds the wait until clients have these changes.
	bridgeDeliveryTimeout = time.Second
)

// errBridge says that the changes which a watch told, applied to the known state, do not give the loaded one.
var errBridge = errors.New("a watch from the known state does not lead to the loaded one")

// bridge lets the clients' watches go on over a state that was loaded beside the known one: it reads with a progress
// watch what happened in between, and applies that. After an error they cannot go on, since they would miss something.
// It is not enough that both states have the same objects at the same revisions: an object may have been created and
// deleted in between. An example, with the known interval [100, 120] and the loaded revision 150:
//
//	the watch from 120 on                      then
//	is answered 410                            clients' watches end
//	tells 130 and 140, and a bookmark at 155   if the state at 120 with these two changes is the loaded one, clients'
//	                                           watches are told of both, and go on from 150; else they end
func (f *feed) bridge(ctx context.Context, l *loaded) error {
	v := f.collection.view.Load()
	var changes []stateChange
	state := v.newest.Clone()
	p, err := f.watchProgress(ctx, v.To, l.revision, func(ev wire.Event) error {
		ch, err := f.stateChange(f.envelope, ev)
		if err != nil {
			return err
		}
		changes = append(changes, ch)
		if len(changes) > maxBridged || !ev.Reproducible {
			return errBridge
		}
		_, err = ch.applyTo(state)
		return err
	})
	switch {
	case err != nil:
		return err
	case p.revision < l.revision, !sameRevisions(state, l.state):
		return errBridge
	}
	for _, ch := range changes {
		if err := f.collection.apply(ch); err != nil {
			return err
		}
	}
	v.broadcaster.AwaitDelivered(ctx, bridgeDeliveryTimeout)
	return nil
}

// handleProgress handles the outcome of a progress watch, and returns what it has shown. If the watch failed, that says
// nothing about the stream, which goes on unless handleProgress returns an error.
func (f *feed) handleProgress(result outcome[progress]) (progress, error) {
	now := time.Now()
	if _, contradiction := errors.AsType[wire.InconsistencyError](result.err); contradiction {
		return progress{}, result.err
	}
	// While the timeline is uncertain, the watch may have another one than the stream, which is about to be left.
	switch uncertain := f.fresh.TimelineUncertain(now); {
	case result.err == nil && !uncertain:
		f.fresh.ProgressOver(result.value.revision > f.collection.view.Load().To)
		return result.value, nil
	case result.err == nil:
		f.fresh.ProgressOver(false)
	case errors.Is(result.err, errNoBookmark):
		hadNoBookmarks := f.fresh.NoBookmarks()
		f.fresh.ProgressUnmarked(now)
		if !hadNoBookmarks && f.fresh.NoBookmarks() {
			f.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): nothing is proven " +
				"to be the newest state, and lists of it are forwarded")
		}
	default:
		f.log.Debug("a progress watch proves nothing", "error", result.err)
		f.fresh.ProgressFailed(now, source.RetryPause(0, result.err))
	}
	return progress{}, nil
}

// takeProgress advances the interval to the revision that a progress watch has shown, if the stream has told all
// changes that the watch has shown. Otherwise it returns p, to be taken later.
func (c *Collection) takeProgress(p progress) (progress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	switch {
	case p.revision <= v.To, v.unavailable != reason.None:
		return progress{}, nil
	case p.last() > v.To:
		return p, nil
	}
	for _, rev := range p.changes {
		if rev > v.From && v.versions.Find(rev).Revision != rev {
			return p, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", rev)
		}
	}
	c.advanceLocked(v, p.revision, v.newest)
	return progress{}, nil
}

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// progressTimeout bounds a progress watch, with the time until it is answered.
const progressTimeout = 15 * time.Second

// progress is what a progress watch has shown: all changes after from, up to
// revision.
type progress struct {
	from, revision uint64
	// changes are the revisions of the changes between the two, in order, and first is the first of them.
	changes []uint64
	first   wire.Event
}

// last is the revision of the last change, or where the watch began.
func (a progress) last() uint64 {
	if n := len(a.changes); n > 0 {
		return a.changes[n-1]
	}
	return a.from
}

// watchProgress opens a progress watch from a revision on, and reads it up to its first bookmark, or to the
// first change after the revision until: then it has told all up to there.
func (f *feed) watchProgress(ctx context.Context, from, until uint64) (progress, error) {
	ctx, cancel := context.WithTimeout(source.With(ctx, source.ForProgress), progressTimeout)
	defer cancel()
	a := progress{from: from}
	s, err := f.goOn(ctx, from, freshness.ShortWatch)
	if err != nil {
		return a, err
	}
	defer s.Stop()
	for ev := range s.Events {
		switch rev := ev.Meta.Revision; {
		case rev < a.last():
			return a, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", from, rev, a.last())
		case ev.Kind == wire.Bookmarked:
			f.checkForm(ev)
			a.revision = rev
			return a, nil
		default:
			if len(a.changes) == 0 {
				a.first = ev
			}
			a.changes = append(a.changes, rev)
			if rev > until {
				a.revision = rev
				return a, nil
			}
		}
	}
	if s.InOrder(time.Now()) {
		return a, errNoBookmark
	}
	return a, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

// samePast returns nil if the upstream has the past that is known here. After etcd was restored from an
// older snapshot, and written to until its revision had passed ours, a watch can begin where the last one
// had come to, as if nothing had happened. So a progress watch from just before the newest change that is no
// deletion (which another past can have, too) must tell that change again, byte for byte, and then the
// deletions that followed, and nothing else up to the interval's end. With [errUnproven] it does not, or
// there was no such change since the load.
func (f *feed) samePast(ctx context.Context) error {
	v := f.collection.view.Load()
	last, revisions := v.lastChange()
	if last == nil {
		return errUnproven
	}
	a, err := f.watchProgress(ctx, last.Revision-1, v.To)
	switch {
	// Without a bookmark, all that was told until the timeout must be enough.
	case err != nil && !errors.Is(err, errNoBookmark):
		return err
	case err == nil && a.revision < v.To:
		return fmt.Errorf("the upstream is at revision %d, and not at %d yet", a.revision, v.To)
	}
	told, _ := slices.BinarySearch(a.changes, v.To+1)
	if !slices.Equal(a.changes[:told], revisions) {
		return errUnproven
	}
	first, err := f.change(f.frame, a.first)
	if err != nil || first.key != last.Key || first.object == nil || !bytes.Equal(first.object.Bytes, last.Bytes) {
		return errUnproven
	}
	return nil
}

// errNoBookmark says that a progress watch has lasted until its timeout.
var errNoBookmark = errors.New("a progress watch ended without a bookmark")

// progressOver handles the outcome of a progress watch, and returns what it has shown. A watch that
// fails says nothing about the stream.
func (f *feed) progressOver(a outcome[progress]) (progress, error) {
	now := time.Now()
	if _, contradiction := errors.AsType[wire.InconsistencyError](a.err); contradiction {
		return progress{}, a.err
	}
	// In doubt, the watch may be of another past than the stream, which is then about to be closed.
	switch doubt := f.fresh.PastUncertain(now); {
	case a.err == nil && !doubt:
		f.fresh.ProgressOver(a.value.revision > f.collection.view.Load().To)
		return a.value, nil
	case a.err == nil:
		f.fresh.ProgressOver(false)
	case errors.Is(a.err, errNoBookmark):
		was := f.fresh.NoBookmarks()
		if f.fresh.ProgressUnmarked(now); !was && f.fresh.NoBookmarks() {
			f.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): nothing is proven " +
				"to be the newest state, and lists of it are forwarded")
		}
	default:
		f.log.Debug("a progress watch proves nothing", "error", a.err)
		f.fresh.ProgressFailed(now, source.Wanted(0, a.err))
	}
	return progress{}, nil
}

// take advances the interval to the revision that a progress watch has shown, once the stream has told
// all changes that the watch has shown. Otherwise it returns a, to be taken later.
func (c *Collection) take(a progress) (progress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	switch {
	case a.revision <= v.To, v.absence != reason.None:
		return progress{}, nil
	case a.last() > v.To:
		return a, nil
	}
	for _, rev := range a.changes {
		if rev > v.From && v.versions.Find(rev).Revision != rev {
			return a, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", rev)
		}
	}
	c.advanceLocked(v, a.revision, v.newest)
	return progress{}, nil
}

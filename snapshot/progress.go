package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// progressTimeout bounds a progress watch, including the time until it is answered.
const progressTimeout = 15 * time.Second

// errNoBookmark says that a progress watch has lasted until its timeout without a bookmark.
var errNoBookmark = errors.New("a progress watch ended without a bookmark")

// progress is what a progress watch has shown: all changes after the revision from, up to revision. The zero value
// shows nothing.
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
// first change after the revision until, which shows that all changes up to until have come. It calls take, unless that
// is nil, with each change up to until, and returns the error of take. If the watch lasts until its timeout without a
// bookmark, the error is errNoBookmark, and the changes are those that have come.
func (f *feed) watchProgress(ctx context.Context, from, until uint64, take func(wire.Event) error) (progress, error) {
	ctx, cancel := context.WithTimeout(source.WithPurpose(ctx, source.ForProgress), progressTimeout)
	defer cancel()
	p := progress{from: from}
	s, err := f.openWatch(ctx, from, source.ShortWatch)
	if err != nil {
		return p, err
	}
	defer s.Stop()
	for ev := range s.Events {
		revision := ev.Meta.Revision
		switch {
		case revision < p.last():
			return p, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", from, revision, p.last())
		case ev.Type == wire.Bookmarked:
			f.checkForm(ev)
			p.revision = revision
			return p, nil
		case revision > until:
			p.revision = until
			return p, nil
		}
		p.changes = append(p.changes, revision)
		if take != nil {
			if err := take(ev); err != nil {
				return p, err
			}
		}
	}
	if s.EndedAtTimeout(time.Now()) {
		return p, errNoBookmark
	}
	return p, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

// handleProgress handles the outcome of a progress watch, and returns what the watch has shown. A failure of the watch
// says nothing about the stream. Only if the watch contradicts itself, handleProgress returns an error, and the stream
// must not be read any more.
func (f *feed) handleProgress(result outcome[progress]) (progress, error) {
	now := time.Now()
	if _, contradiction := errors.AsType[wire.InconsistencyError](result.err); contradiction {
		return progress{}, result.err
	}
	// While the timeline is uncertain, the watch may have another one than the stream, which is about to be left.
	isUncertain := f.fresh.TimelineUncertain(now)
	switch {
	case result.err == nil && !isUncertain:
		f.fresh.ProgressEnded(result.value.revision > f.collection.view.Load().To)
		return result.value, nil
	case result.err == nil:
		f.fresh.ProgressEnded(false)
	case errors.Is(result.err, errNoBookmark):
		hadNoBookmarks := f.fresh.NoBookmarks()
		f.fresh.ProgressWithoutBookmark(now)
		if !hadNoBookmarks && f.fresh.NoBookmarks() {
			f.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): " +
				"nothing is proven to be the newest state, and lists of it are forwarded")
		}
	default:
		f.log.Debug("a progress watch proves nothing", "error", result.err)
		f.fresh.ProgressFailed(now, source.RetryPause(0, result.err))
	}
	return progress{}, nil
}

// applyProgress advances the interval to the revision that a progress watch has shown, once the stream has sent all
// changes that the watch has shown. It returns what is left to apply later: p, or nothing. It returns an error if the
// stream has passed over one of the changes.
func (c *Collection) applyProgress(p progress) (left progress, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	switch {
	case p.revision <= v.To, v.unavailable != reason.None:
		return progress{}, nil
	case p.last() > v.To:
		return p, nil
	}
	for _, revision := range p.changes {
		if revision > v.From && v.versions.Find(revision).Revision != revision {
			return p, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", revision)
		}
	}
	c.advanceLocked(v, p.revision, v.newest)
	return progress{}, nil
}

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

// progress is what a progress watch has shown: all changes after the revision start, up to the revision end. The zero
// value shows nothing.
type progress struct {
	start, end uint64
	// revisions has the revisions of the changes, in ascending order.
	revisions []uint64
}

// last returns the revision of the last change; start if there was no change.
func (p progress) last() uint64 {
	if n := len(p.revisions); n > 0 {
		return p.revisions[n-1]
	}
	return p.start
}

// watchProgress opens a progress watch after the revision start. It reads the watch up to the first bookmark, or up to the
// first change after the revision target: either shows that no earlier change is missing. It calls onChange, unless that is
// nil, for each change up to target, and stops at the first error of onChange. If the watch lasts until its timeout without a
// bookmark, watchProgress returns errNoBookmark and the changes that have come.
func (f *feed) watchProgress(ctx context.Context, start, target uint64, onChange func(wire.Event) error) (progress, error) {
	ctx, cancel := context.WithTimeout(source.WithPurpose(ctx, source.ForProgress), progressTimeout)
	defer cancel()
	p := progress{start: start}
	s, err := f.openWatch(ctx, start, source.ShortWatch)
	if err != nil {
		return p, err
	}
	defer s.Stop()
	for ev := range s.Events {
		revision := ev.Meta.Revision
		switch {
		case revision < p.last():
			return p, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", start, revision, p.last())
		case ev.Type == wire.Bookmarked:
			f.checkForm(ev)
			p.end = revision
			return p, nil
		case revision > target:
			p.end = target
			return p, nil
		}
		p.revisions = append(p.revisions, revision)
		if onChange != nil {
			if err := onChange(ev); err != nil {
				return p, err
			}
		}
	}
	if s.EndedAtTimeout(time.Now()) {
		return p, errNoBookmark
	}
	return p, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

// handleProgress handles the outcome of a progress watch beside the stream, and returns what the watch has shown. A watch
// that failed has shown nothing, and the stream goes on. Only after an inconsistency handleProgress returns an error: the
// stream must not be read any more.
func (f *feed) handleProgress(result outcome[progress]) (progress, error) {
	now := time.Now()
	_, isInconsistent := errors.AsType[wire.InconsistencyError](result.err)
	switch {
	case result.err == nil && f.freshness.TimelineUncertain(now):
		// The watch may be of another timeline than the stream, which will be left soon. So the watch shows nothing.
		f.freshness.ProgressEnded(false)
	case result.err == nil:
		isAhead := result.value.end > f.collection.view.Load().To
		f.freshness.ProgressEnded(isAhead)
		return result.value, nil
	case isInconsistent:
		return progress{}, result.err
	case errors.Is(result.err, errNoBookmark):
		hadNoBookmarks := f.freshness.NoBookmarks()
		f.freshness.ProgressWithoutBookmark(now)
		if !hadNoBookmarks && f.freshness.NoBookmarks() {
			f.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): " +
				"nothing is proven to be the newest state, and lists of it are forwarded")
		}
	default:
		f.log.Debug("a progress watch proves nothing", "error", result.err)
		f.freshness.ProgressFailed(now, source.RetryPause(0, result.err))
	}
	return progress{}, nil
}

// applyProgress advances the interval to p.end, once the stream has sent all changes that the progress watch has shown. Until
// then it returns p, which the caller must apply later; afterwards the zero progress. It returns an error if the stream has
// passed over one of the changes.
func (c *Collection) applyProgress(p progress) (unapplied progress, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	switch {
	case p.end <= v.To, v.unavailable != reason.None:
		return progress{}, nil
	case p.last() > v.To:
		return p, nil
	}
	for _, revision := range p.revisions {
		// Find returns a version, since its revision is above From.
		if revision > v.From && v.versions.Find(revision).Revision != revision {
			return p, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", revision)
		}
	}
	c.advanceLocked(v, p.end, v.newest)
	return progress{}, nil
}

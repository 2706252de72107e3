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

// progress is what a progress watch has seen: all changes after one revision, up to another. The zero value stands for no
// progress watch.
//
// A progress watch is a second, short watch beside the stream. Its bookmark comes within about a second, and shows that no
// other change has happened up to the bookmark's revision. (The stream's own bookmarks come only once a minute.) Once the
// stream, too, has sent every change that the progress watch has seen, applyProgress advances the state to that revision.
type progress struct {
	// after and upTo bound the revisions of the changes: above after, up to upTo. upTo is 0 if the watch failed.
	after, upTo uint64
	// revisions has the revisions of the changes, in ascending order.
	revisions []uint64
}

// last returns the revision of the last change, or p.after if there was no change.
func (p progress) last() uint64 {
	if n := len(p.revisions); n > 0 {
		return p.revisions[n-1]
	}
	return p.after
}

// progressTimeout bounds a progress watch, including the time until the upstream begins to answer.
const progressTimeout = 15 * time.Second

// errNoBookmark says that a progress watch has lasted until its timeout without a bookmark.
var errNoBookmark = errors.New("a progress watch ended without a bookmark")

// watchProgress opens a progress watch after a revision, and calls onChange for each change up to the revision target. One of
// these events ends the watch, since events come in the order of their revisions:
//
//	the event               the watch has seen all changes up to
//	the first bookmark      the bookmark's revision
//	a change after target   the target
//
// An error of onChange ends the watch, too. If the watch lasts until its timeout without a bookmark, watchProgress returns
// errNoBookmark together with the changes that have come.
func (f *feed) watchProgress(ctx context.Context, after, target uint64, onChange func(wire.Event) error) (progress, error) {
	ctx, cancel := context.WithTimeout(source.WithPurpose(ctx, source.ForProgress), progressTimeout)
	defer cancel()
	seen := progress{after: after}
	s, err := f.openWatch(ctx, after, source.ShortWatch)
	if err != nil {
		return seen, err
	}
	defer s.Stop()
	for ev := range s.Events {
		revision := ev.Meta.Revision
		switch {
		case revision < seen.last(): // an equal revision is right: a bookmark may have that of the last change
			return seen, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", after, revision, seen.last())
		case ev.Type == wire.Bookmarked:
			f.checkEventForm(ev)
			seen.upTo = revision
			return seen, nil
		case revision > target:
			seen.upTo = target
			return seen, nil
		}
		seen.revisions = append(seen.revisions, revision)
		if err := onChange(ev); err != nil {
			return seen, err
		}
	}
	if s.EndedAtTimeout(time.Now()) {
		return seen, errNoBookmark
	}
	return seen, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

// handleProgress handles the result of a progress watch that was open beside the stream: what the watch has seen, or an error.
// It keeps what was seen in r.pendingProgress, for applyProgress. It returns an error only for an inconsistency, after which
// the stream must not be read any more.
func (r *reader) handleProgress(seen progress, err error) error {
	now := time.Now()
	r.pendingProgress = progress{}
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	switch {
	case err == nil:
		// If the timeline (history of etcd) is uncertain, the watch may have seen another timeline than the stream. Then
		// nothing is kept.
		if !r.freshness.TimelineUncertain(now) {
			r.pendingProgress = seen
		}
		isAheadOfStream := r.pendingProgress.upTo > r.collection.view.Load().To
		r.freshness.ProgressSentBookmark(isAheadOfStream)
	case isInconsistent:
		return err
	case errors.Is(err, errNoBookmark):
		missingBefore := r.freshness.BookmarksMissing()
		r.freshness.ProgressTimedOut(now)
		if !missingBefore && r.freshness.BookmarksMissing() { // missing from now on, which is logged once
			r.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): " +
				"nothing is proven to be the newest state, and lists of it are forwarded")
		}
	default:
		r.log.Debug("a progress watch proves nothing", "error", err)
		r.freshness.ProgressFailed(now, source.RetryPause(0, err)) // the pause is at least the upstream's Retry-After
	}
	return nil
}

// applyProgress advances the interval of known revisions (View.Interval) to seen.upTo if the stream has sent all changes that
// the progress watch has seen. If the stream may still send some of them, applyProgress returns seen as pending: it must be
// applied again later. For example, the watch has seen changes at 130 and 140, and a bookmark at 155:
//
//	the stream has sent   applyProgress
//	130                   returns seen as pending: 140 is still to come
//	130, 140              advances the interval to 155, and returns the zero progress
//	130, 145              returns an error: the stream has passed over 140
func (c *Collection) applyProgress(seen progress) (pending progress, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	switch {
	case seen.upTo <= v.To, v.unavailable != reason.None: // there is nothing to advance
		return progress{}, nil
	case seen.last() > v.To:
		return seen, nil
	}
	for _, revision := range seen.revisions {
		// Changes up to From are in the state at From. Above From, each change that the stream has sent has a version of its
		// own. If the stream has not sent this change, Find returns an earlier version.
		if revision > v.From && v.versions.Find(revision).Revision != revision {
			return progress{}, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", revision)
		}
	}
	next := v.clone()
	next.To = seen.upTo
	c.advanceLocked(next)
	return progress{}, nil
}

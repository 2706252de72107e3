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

// progress is what a progress watch has shown: all changes after one revision, up to another. The zero value shows nothing.
//
// A progress watch is a second, short watch beside the stream. It is opened for its first bookmark, which shows that no change
// up to the bookmark's revision is missing.
type progress struct {
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

// progressTimeout bounds a progress watch, including the time until it is answered.
const progressTimeout = 15 * time.Second

// errNoBookmark says that a progress watch has lasted until its timeout without a bookmark.
var errNoBookmark = errors.New("a progress watch ended without a bookmark")

// watchProgress opens a progress watch after a revision, and calls onChange for each change up to the revision target. A
// bookmark, or a change after target, ends the watch: everything before has come then. An error of onChange ends it, too.
//
// If the watch lasts until its timeout without a bookmark, watchProgress returns errNoBookmark and the changes that have come.
func (f *feed) watchProgress(ctx context.Context, after, target uint64, onChange func(wire.Event) error) (progress, error) {
	ctx, cancel := context.WithTimeout(source.WithPurpose(ctx, source.ForProgress), progressTimeout)
	defer cancel()
	p := progress{after: after}
	s, err := f.openWatch(ctx, after, source.ShortWatch)
	if err != nil {
		return p, err
	}
	defer s.Stop()
	for ev := range s.Events {
		revision := ev.Meta.Revision
		switch {
		case revision < p.last():
			return p, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", after, revision, p.last())
		case ev.Type == wire.Bookmarked:
			f.checkFormOrAbortWatches(ev)
			p.upTo = revision
			return p, nil
		case revision > target:
			p.upTo = target
			return p, nil
		}
		p.revisions = append(p.revisions, revision)
		if err := onChange(ev); err != nil {
			return p, err
		}
	}
	if s.EndedAtTimeout(time.Now()) {
		return p, errNoBookmark
	}
	return p, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

// handleProgress handles the end of a progress watch that was open beside the stream. r.unapplied becomes what the watch has
// shown: nothing if it failed, or if the timeline is uncertain. handleProgress returns an error only for an inconsistency,
// after which the stream must not be read any more.
func (r *reader) handleProgress(shown progress, err error) error {
	now := time.Now()
	r.unapplied = progress{}
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	switch {
	case err == nil:
		if !r.freshness.TimelineUncertain(now) { // else the watch may be of another timeline (history of etcd) than the stream
			r.unapplied = shown
		}
		helped := r.unapplied.upTo > r.collection.view.Load().To // the stream has proven less
		r.freshness.ProgressEnded(helped)
	case isInconsistent:
		return err
	case errors.Is(err, errNoBookmark):
		hadNoBookmarks := r.freshness.NoBookmarks()
		r.freshness.ProgressWithoutBookmark(now)
		if !hadNoBookmarks && r.freshness.NoBookmarks() {
			r.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): " +
				"nothing is proven to be the newest state, and lists of it are forwarded")
		}
	default:
		r.log.Debug("a progress watch proves nothing", "error", err)
		r.freshness.ProgressFailed(now, source.RetryPause(0, err))
	}
	return nil
}

// applyProgress advances the interval of known revisions (View.Interval) to p.upTo if the stream has sent all changes that the
// progress watch has shown. For example, the watch has shown changes at 130 and 140, and a bookmark at 155:
//
//	the stream has sent   applyProgress
//	130                   returns p, to be applied again later: 140 is still to come
//	130, 140              advances the interval to 155
//	130, 145              returns an error: the stream has passed over 140
func (c *Collection) applyProgress(p progress) (unapplied progress, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	switch {
	case p.upTo <= v.To, v.unavailable != reason.None:
		return progress{}, nil
	case p.last() > v.To:
		return p, nil
	}
	for _, revision := range p.revisions {
		// Changes up to From are in the state at From. Above it, there must be a version with exactly this revision. Find
		// returns the newest version up to the revision, never nil.
		if revision > v.From && v.versions.Find(revision).Revision != revision {
			return p, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", revision)
		}
	}
	c.advanceLocked(v, p.upTo, v.newest)
	return progress{}, nil
}

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

// progress is what a progress watch has shown: all changes after one revision, up to another. The zero value has no changes.
//
// A progress watch is a second, short watch beside the stream. Its bookmark comes within about a second, and shows that no
// other change has happened up to the bookmark's revision. (The stream's own bookmarks come once a minute.) Once the stream,
// too, has sent every change that the progress watch has shown, applyProgress advances the state to the bookmark's revision.
type progress struct {
	// after and upTo are the two revisions. upTo is that of the bookmark, or the target of watchProgress; 0 if the watch failed.
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

// watchProgress opens a progress watch after a revision, and calls onChange for each change up to the revision target. The
// first bookmark, or the first change after target, ends the watch, since events come in the order of their revisions. An error
// of onChange ends it, too.
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
		case revision < p.last(): // a bookmark may have the revision of the last change
			return p, wire.Inconsistent("a watch from revision %d tells of revision %d after %d", after, revision, p.last())
		case ev.Type == wire.Bookmarked:
			f.checkEventForm(ev)
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

// handleProgress handles the end of a progress watch that was open beside the stream. It keeps what the watch has shown in
// r.shown, unless the watch has failed or the timeline is uncertain. It returns an error only for an inconsistency, after
// which the stream must not be read any more.
func (r *reader) handleProgress(shown progress, err error) error {
	now := time.Now()
	r.shown = progress{}
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	switch {
	case err == nil:
		// If the timeline (history of etcd) is uncertain, the watch may have shown another timeline than the stream's.
		if !r.freshness.TimelineUncertain(now) {
			r.shown = shown
		}
		helped := r.shown.upTo > r.collection.view.Load().To // the watch has proven more than the stream
		r.freshness.ProgressSentBookmark(helped)
	case isInconsistent:
		return err
	case errors.Is(err, errNoBookmark):
		wereMissing := r.freshness.BookmarksMissing()
		r.freshness.ProgressTimedOut(now)
		if !wereMissing && r.freshness.BookmarksMissing() {
			r.log.Warn("the upstream sends no bookmarks of this resource, as without a watch cache (--watch-cache-sizes): " +
				"nothing is proven to be the newest state, and lists of it are forwarded")
		}
	default:
		r.log.Debug("a progress watch proves nothing", "error", err)
		r.freshness.ProgressFailed(now, source.RetryPause(0, err)) // the pause is at least the upstream's Retry-After
	}
	return nil
}

// applyProgress advances the interval of known revisions (View.Interval) to p.upTo if the stream has sent all changes that the
// progress watch has shown. For example, the watch has shown changes at 130 and 140, and a bookmark at 155:
//
//	the stream has sent   applyProgress
//	130                   returns p, which must be applied again later: 140 is still to come
//	130, 140              advances the interval to 155, and returns zero
//	130, 145              returns an error: the stream has passed over 140
func (c *Collection) applyProgress(p progress) (pending progress, err error) {
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
		// Changes up to From are in the state at From. Above From, each change that the stream has sent has a version of its own.
		// If the stream has not sent this change, Find returns an earlier version.
		if revision > v.From && v.versions.Find(revision).Revision != revision {
			return p, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", revision)
		}
	}
	next := v.clone()
	next.To = p.upTo
	c.advanceLocked(next)
	return progress{}, nil
}

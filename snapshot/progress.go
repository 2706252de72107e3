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

// progressTimeout bounds a progress watch, including the time until it is answered. A progress watch is a short watch beside
// the stream, opened only to learn from its first bookmark what has happened up to a revision.
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

// last returns the revision of the last change, or start if there was no change.
func (p progress) last() uint64 {
	if n := len(p.revisions); n > 0 {
		return p.revisions[n-1]
	}
	return p.start
}

// watchProgress opens a progress watch after the revision start, and calls onChange for each change up to the revision target.
// It stops at the first bookmark or at the first change after target, since both show that no earlier change is missing. It
// also stops at the first error of onChange.
//
// If the watch lasts until its timeout without a bookmark, watchProgress returns errNoBookmark and the changes that have come.
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
		if err := onChange(ev); err != nil {
			return p, err
		}
	}
	if s.EndedAtTimeout(time.Now()) {
		return p, errNoBookmark
	}
	return p, fmt.Errorf("a progress watch broke before its bookmark: %w", s.Err)
}

// handleProgress handles the end of a progress watch that was open beside the stream. What the watch has shown becomes
// r.unapplied; a watch that failed has shown nothing. handleProgress returns an error only for an inconsistency, after which
// the stream must not be read any more.
func (r *reader) handleProgress(shown progress, err error) error {
	now := time.Now()
	r.unapplied = progress{}
	_, isInconsistent := errors.AsType[wire.InconsistencyError](err)
	switch {
	case err == nil && r.freshness.TimelineUncertain(now):
		// The watch may be of another timeline (history of etcd) than the stream, and proves nothing about it.
		const helped = false
		r.freshness.ProgressEnded(helped)
	case err == nil:
		r.unapplied = shown
		helped := shown.end > r.collection.view.Load().To // the stream has proven less
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

// applyProgress advances the interval of known revisions (View.Interval) to p.end if the stream has sent all changes that the
// progress watch has shown. If the stream has not sent all of them yet, applyProgress returns p, to be applied again later. If
// the stream has passed over one of the changes, applyProgress returns an error.
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
		// The state at From includes all earlier changes. Above From, Find returns the newest version up to the revision,
		// never nil.
		if revision > v.From && v.versions.Find(revision).Revision != revision {
			return p, wire.Inconsistent("a watch tells of a change at revision %d, which the stream has passed over", revision)
		}
	}
	c.advanceLocked(v, p.end, v.newest)
	return progress{}, nil
}

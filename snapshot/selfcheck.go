package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// A check compares the names and revisions of namesPages pages of namesPage objects, for no longer than
	// namesTimeout, and the bytes of bytesPage objects. A page has about pageBytes at most. The next check goes on
	// where this one ended.
	namesPages   = 20
	namesPage    = 1000
	namesTimeout = 30 * time.Second
	bytesPage    = 500
	pageBytes    = 4 << 20
	// The pause after a page is pauseFactor times as long as the upstream worked for it, and at least minPause.
	pauseFactor = 4
	minPause    = 50 * time.Millisecond
	// checkTries is the number of revisions at which a comparison is tried, since the upstream may have forgotten one, or
	// may not have reached it yet. checkRetry is the time between two tries.
	checkTries = 3
	checkRetry = 2 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 2 * time.Minute
)

// SelfChecks returns the number of checks by result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 { return c.checks.totals() }

// Mismatched returns the results for each collection in which a self-check has found a difference since the process
// started, even if that collection is gone.
func (c *Collections) Mismatched() map[CollectionKey]CheckStats { return c.checks.mismatched() }

// selfCheck checks the live collections one after the other, each about once per interval. The one whose last check is
// the longest ago comes next.
func (c *Collections) selfCheck(interval time.Duration) {
	for {
		pause := interval / time.Duration(max(1, len(c.list())))
		if !clock.Sleep(c.ctx, pause/2+rand.N(pause)) { // random, so that replicas do not ask at the same time
			return
		}
		if r := c.longestUnchecked(); r != nil {
			c.check(r)
		}
	}
}

// longestUnchecked returns the live collection whose last check is the longest ago; nil if none is live. It forgets the
// results for collections that are gone, unless one was a mismatch.
func (c *Collections) longestUnchecked() (found *running) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.checks.forget(func(key CollectionKey) bool { return c.all[key] == nil })
	for key, r := range c.all {
		_, unavailable := r.newest()
		if unavailable == reason.None && (found == nil || c.checks.stats(key).At.Before(c.checks.stats(found.resource).At)) {
			found = r
		}
	}
	return found
}

// newest returns the newest state, if it may be given to callers now, as if it were a state at an exact revision: so
// its age does not matter later. It does not count as a use of the collection.
func (c *Collection) newest() (Snapshot, reason.Reason) {
	s, unavailable := c.view.Load().latest(c.moment(), 0)
	s.CurrentAt = time.Time{}
	return s, unavailable
}

// check compares a part of a collection with the upstream. If it differs, the collection is dropped and started anew.
func (c *Collections) check(r *running) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	rev, next, err := c.compare(ctx, r, c.checks.next(r.resource))
	if c.ctx.Err() != nil {
		return
	}
	pause := c.recordCheck(r, rev, next, err)
	if source.IsMismatch(err) {
		c.restart(r, pause)
	}
}

// recordCheck records and logs the result of a check at a revision; the next check begins at next. It returns the time
// for which the collection must not be kept after a mismatch.
func (c *Collections) recordCheck(r *running, rev uint64, next place, err error) (pause time.Duration) {
	log := c.config.Log.With("collection", r.resource.String(), "revision", rev)
	record := func(result CheckResult) time.Duration {
		return c.checks.record(r.resource, result, next, time.Now(), unlikelyRetry)
	}
	switch {
	case err == nil:
		record(CheckAgrees)
		log.Debug("self-check: agrees")
	case source.IsMismatch(err):
		pause = record(CheckMismatch)
		log.Error("self-check: what is kept is not what the upstream says, it is dropped", "error", err)
	default:
		record(CheckInconclusive)
		log.Info("self-check: no verdict", "error", err)
	}
	return pause
}

// restart drops a collection for ever. It starts another in its place, unless nothing may be kept for the pause.
func (c *Collections) restart(r *running, pause time.Duration) {
	lastUse := r.lastUse.Load()
	c.Invalidate(Invalidation{Cause: Mismatch, Scope: OfCollection(r.resource), Until: For(pause)})
	if successor, refusal := c.start(r.resource); refusal == reason.None {
		successor.lastUse.Store(lastUse) // its start counts as no use
	}
}

// compare compares a part of the newest state, from a place on, with the upstream's. If the upstream does not have that
// revision, it tries a later one. It returns the revision, and the place at which the next check begins. The error is a
// [source.MismatchError] only if the difference was confirmed; any other error means that there is no verdict.
func (c *Collections) compare(ctx context.Context, r *running, at place) (rev uint64, next place, err error) {
	comparer := &source.Comparison{Source: c.source(r.resource)}
	for try := 1; ; try++ {
		s, unavailable := r.newest()
		if unavailable != reason.None {
			return rev, at, unavailableError{unavailable}
		}
		rev = s.Revision
		next, err = c.compareAt(ctx, comparer, s, at)
		if wrong, ok := errors.AsType[*source.MismatchError](err); ok {
			next = at
			err = c.confirm(ctx, r, s, wrong)
		}
		if try == checkTries || !source.Answered(err, http.StatusGone, http.StatusGatewayTimeout) || !clock.Sleep(ctx, checkRetry) {
			return rev, next, err
		}
	}
}

// compareAt compares a part of s by names and revisions, and a page of it byte by byte. It returns the place at which
// to go on. A page that the upstream never answers is skipped, so that all others are checked nevertheless.
func (c *Collections) compareAt(ctx context.Context, comparer *source.Comparison, s Snapshot, at place) (next place, err error) {
	next = at
	begun := time.Now()
	for range namesPages {
		asked := time.Now()
		next.Names, err = comparer.Names(ctx, s.state(), next.Names, namesPage, pageBytes)
		if source.IsMismatch(err) {
			return at, err
		}
		goOn := clock.Sleep(ctx, max(minPause, pauseFactor*time.Since(asked)))
		if !goOn || err != nil || next.Names == "" || time.Since(begun) >= namesTimeout {
			break
		}
	}
	from := at.Bytes
	if !s.Tree.Any(from, "") {
		from = "" // nothing is left: begin at the first page again
	}
	limit := s.Tree.PageLimit(from, bytesPage, pageBytes)
	page := s.Page(index.Query{Start: from, Limit: limit}, nil)
	next.Bytes = page.Next
	return next, errors.Join(err, comparer.Page(ctx, s.state(), from, limit))
}

// confirm compares once more after a pause. It returns the mismatch if it is still there, and any other error if that
// is not certain. If only bytes differ, a definition may just have changed: listproxy learns of that as late as an
// API server may.
func (c *Collections) confirm(ctx context.Context, r *running, s Snapshot, wrong *source.MismatchError) error {
	pause := checkRetry
	if wrong.SameObjects {
		pause = Skew
	}
	if !clock.Sleep(ctx, pause) {
		return ctx.Err()
	}
	err := wrong.Again(ctx)
	if err == nil {
		return fmt.Errorf("a mismatch was gone the second time: %s", wrong.Error())
	}
	if !errors.As(err, &wrong) {
		return err
	}
	if validity := r.Validity(); validity.Unavailable != reason.None || validity.Epoch != s.epoch {
		return unavailableError{cmp.Or(validity.Unavailable, reason.Warming)} // the state was dropped meanwhile
	}
	return wrong
}

// unavailableError says that a state cannot be compared, since it is not known any more.
type unavailableError struct{ unavailable reason.Reason }

func (e unavailableError) Error() string {
	return "the state is not there any more: " + string(e.unavailable)
}

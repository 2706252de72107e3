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
	// A check compares the names and revisions of namesPages pages of namesPage objects, for no longer
	// than namesFor, and the bytes of bytesPage objects. A page has about pageBytes at most. The next
	// check goes on from there.
	namesPages = 20
	namesPage  = 1000
	namesFor   = 30 * time.Second
	bytesPage  = 500
	pageBytes  = 4 << 20
	// After a page of names, the next request waits this many times as long as the upstream worked.
	restFactor = 4
	leastRest  = 50 * time.Millisecond
	// checkTries is the number of revisions at which the upstream is asked, if it does not have one of them (any
	// more, or yet); checkRetry is the time between two.
	checkTries = 3
	checkRetry = 2 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 2 * time.Minute
)

// SelfChecks returns how many checks had which result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 { return c.checks.totals() }

// Mismatched returns the results for each resource in which a self-check has found a difference
// since the process started, even if nothing is kept of it now.
func (c *Collections) Mismatched() map[CollectionKey]CheckStats { return c.checks.mismatched() }

// selfCheck checks the live collections one after the other, each about once in the interval every.
// The one whose last check is the longest ago comes next.
func (c *Collections) selfCheck(every time.Duration) {
	for {
		pause := every / time.Duration(max(1, len(c.list())))
		if !clock.Sleep(c.ctx, pause/2+rand.N(pause)) { // replicas are not to ask at the same time
			return
		}
		if r := c.longestUnchecked(); r != nil {
			c.check(r)
		}
	}
}

// longestUnchecked returns the live collection whose last check is the longest ago; nil if none is
// live. It forgets the results for resources that are gone, unless one was a mismatch.
func (c *Collections) longestUnchecked() (found *running) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.checks.forget(func(r CollectionKey) bool { return c.all[r] == nil })
	for r, running := range c.all {
		if _, unavailable := running.newest(); unavailable == reason.None &&
			(found == nil || c.checks.stats(r).At.Before(c.checks.stats(found.resource).At)) {
			found = running
		}
	}
	return found
}

// newest returns the newest state, as a state of the history, if it may be given to callers now. It
// does not count as a use of the collection.
func (c *Collection) newest() (Snapshot, reason.Reason) {
	s, unavailable := c.view.Load().latest(c.moment(), 0)
	s.CurrentAt = time.Time{}
	return s, unavailable
}

// check checks a part of a collection, and drops it if it differs from the upstream.
func (c *Collections) check(r *running) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	rev, next, err := c.compare(ctx, r, c.checks.next(r.resource))
	if c.ctx.Err() != nil {
		return
	}
	pause := c.conclude(r, rev, next, err)
	if source.IsMismatch(err) {
		c.restart(r, pause)
	}
}

// conclude takes in the result of a check at a revision: the next one begins at next. It returns for how long
// nothing is to be kept after a mismatch.
func (c *Collections) conclude(r *running, rev uint64, next place, err error) (pause time.Duration) {
	log := c.config.Log.With("collection", r.resource.String(), "revision", rev)
	note := func(result CheckResult) time.Duration {
		return c.checks.note(r.resource, result, rev, next, time.Now(), unlikelyRetry)
	}
	switch {
	case err == nil:
		note(CheckAgrees)
		log.Debug("self-check: agrees")
	case source.IsMismatch(err):
		pause = note(CheckMismatch)
		log.Error("self-check: what is kept is not what the upstream says, it is dropped", "error", err)
	default:
		note(CheckInconclusive)
		log.Info("self-check: no verdict", "error", err)
	}
	return pause
}

// restart drops a collection for ever and starts another in its place, if it may be started now.
func (c *Collections) restart(r *running, pause time.Duration) {
	used := r.lastUse.Load()
	c.Invalidate(Invalidation{Cause: Mismatch, Scope: OfCollection(r.resource), Until: For(pause)})
	if again, unavailable := c.start(r.resource); unavailable == reason.None {
		again.lastUse.Store(used)
	}
}

// compare compares a part of the newest state, from a place on, with the upstream's; at a later revision if the
// upstream does not have that one. It returns the revision, and where the next check begins. The error is a
// [source.MismatchError] only if the difference was confirmed; any other means that there is no verdict.
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
			next, err = at, c.confirm(ctx, r, s, wrong)
		}
		if try == checkTries || !source.Answered(err, http.StatusGone, http.StatusGatewayTimeout) || !clock.Sleep(ctx, checkRetry) {
			return rev, next, err
		}
	}
}

// compareAt compares a part of s by name and revision, and a page of it byte by byte. It returns where to go on. A part that the upstream does not answer is skipped,
// so that one page that it never answers does not keep all others from being checked.
func (c *Collections) compareAt(ctx context.Context, comparer *source.Comparison, s Snapshot, at place) (next place, err error) {
	next = at
	begun := time.Now()
	for range namesPages {
		asked := time.Now()
		next.Names, err = comparer.Names(ctx, s.state(), next.Names, namesPage, pageBytes)
		if source.IsMismatch(err) {
			return at, err
		}
		rested := clock.Sleep(ctx, max(leastRest, restFactor*time.Since(asked)))
		if !rested || err != nil || next.Names == "" || time.Since(begun) >= namesFor {
			break
		}
	}
	from := at.Bytes
	if !s.tree.Any(from, "") {
		from = "" // the last check had the last page
	}
	limit := s.tree.PageLimit(from, bytesPage, pageBytes)
	page := s.Page(index.Query{Start: from, Limit: limit}, nil)
	next.Bytes = page.Next
	return next, errors.Join(err, comparer.Page(ctx, s.state(), from, limit))
}

// confirm compares again after a time: in which bytes an object is written may have changed, and
// listproxy hears of that as late as any API server does.
func (c *Collections) confirm(ctx context.Context, r *running, s Snapshot, wrong *source.MismatchError) error {
	pause := checkRetry
	if wrong.OnlyBytes {
		pause = Skew
	}
	if !clock.Sleep(ctx, pause) {
		return ctx.Err()
	}
	err := wrong.Again(ctx)
	if err == nil {
		return fmt.Errorf("a mismatch was none the second time: %s", wrong.Error())
	}
	if !errors.As(err, &wrong) {
		return err
	}
	if validity := r.Validity(); validity.Unavailable != reason.None || validity.Epoch != s.epoch {
		return unavailableError{cmp.Or(validity.Unavailable, reason.Warming)} // it was dropped meanwhile, and is given to nobody
	}
	return wrong
}

// unavailableError says that a state cannot be compared, since it is not there.
type unavailableError struct{ unavailable reason.Reason }

func (e unavailableError) Error() string {
	return "the state is not there any more: " + string(e.unavailable)
}

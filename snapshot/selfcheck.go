package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// CheckResult is what a self-check found.
type CheckResult string

const (
	// CheckAgrees: what was compared is what the upstream says, to the last byte.
	CheckAgrees CheckResult = "agrees"
	// CheckMismatch: it is not, twice. The collection was dropped and is loaded again.
	CheckMismatch CheckResult = "mismatch"
	// CheckInconclusive: the upstream did not give the states to compare with.
	CheckInconclusive CheckResult = "inconclusive"
)

// CheckResults returns every CheckResult.
func CheckResults() []CheckResult {
	return []CheckResult{CheckAgrees, CheckMismatch, CheckInconclusive}
}

// CheckStats are what self-checks found of one resource in one representation, in the life of the
// process: also of collections that are gone.
type CheckStats struct {
	// At is when the last check ended; zero if there was none.
	At time.Time
	// Result of the last check, at Revision.
	Result   CheckResult
	Revision uint64
	// Agreed is when a check last found nothing wrong; zero if none did.
	Agreed time.Time
	// Mismatches is how many checks found something wrong, and Mismatched when one last did; zero if none did.
	Mismatches int
	Mismatched time.Time
}

const (
	// confirmAfter is how long something wrong is left alone before it is looked at again. Where the
	// upstream is what changed (a definition, an API server, the server of a group), that is heard
	// of by then, and the collection dropped for that reason: the slowest to be heard of is another
	// /version (package proxy asks for it every 12 seconds at the latest, for 5).
	confirmAfter = 20 * time.Second
	// checkTries is at how many revisions the upstream is asked if it does not have one (any more, or
	// yet), and checkRetry the time between two.
	checkTries = 3
	checkRetry = 2 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 2 * time.Minute
	// mismatchMemory is how long a mismatch counts when there is another.
	mismatchMemory = time.Hour
)

// selfChecks are the results of all checks. The zero value is ready.
type selfChecks struct {
	mu      sync.Mutex
	of      map[Resource]*checkRecord
	results map[CheckResult]uint64
}

// checkRecord is what is known from checks of a resource in one representation.
type checkRecord struct {
	stats CheckStats
	next  cursors
	// strikes is how many mismatches followed each other within mismatchMemory. After the second
	// nothing is kept for a time: what the upstream writes cannot be kept, if it is not the same
	// each time.
	strikes int
}

func (s *selfChecks) recordLocked(r Resource) *checkRecord {
	if s.of[r] == nil {
		if s.of == nil {
			s.of = map[Resource]*checkRecord{}
		}
		s.of[r] = &checkRecord{}
	}
	return s.of[r]
}

// stats are the results for a resource.
func (s *selfChecks) stats(r Resource) CheckStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec := s.of[r]; rec != nil {
		return rec.stats
	}
	return CheckStats{}
}

// mismatched are the results for all resources of which a check ever found something wrong.
func (s *selfChecks) mismatched() map[Resource]CheckStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[Resource]CheckStats{}
	for r, rec := range s.of {
		if rec.stats.Mismatches > 0 {
			found[r] = rec.stats
		}
	}
	return found
}

// cursors are where the next check of a resource begins.
func (s *selfChecks) cursors(r Resource) cursors {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recordLocked(r).next
}

// note takes in the result of a check. It returns how long nothing is to be kept of the resource.
func (s *selfChecks) note(r Resource, result CheckResult, rev uint64, next cursors, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.results == nil {
		s.results = map[CheckResult]uint64{}
	}
	s.results[result]++
	rec := s.recordLocked(r)
	rec.stats.At, rec.stats.Result, rec.stats.Revision, rec.next = now, result, rev, next
	switch result {
	case CheckAgrees:
		rec.stats.Agreed = now
	case CheckMismatch:
		if now.Sub(rec.stats.Mismatched) > mismatchMemory {
			rec.strikes = 0
		}
		rec.stats.Mismatches++
		rec.strikes++
		rec.stats.Mismatched = now
		return holdAfter(rec.strikes)
	case CheckInconclusive:
	}
	return 0
}

// holdAfter is how long nothing is kept of a resource after so many mismatches.
func holdAfter(strikes int) time.Duration {
	if strikes < 2 {
		return 0
	}
	return min(mismatchMemory, seldom<<min(strikes-2, 16))
}

// forget removes what is known of resources that are not there any more, but for mismatches.
func (s *selfChecks) forget(gone func(Resource) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, rec := range s.of {
		if rec.stats.Mismatches == 0 && gone(r) {
			delete(s.of, r)
		}
	}
}

// SelfChecks says how many checks had which result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 {
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	results := map[CheckResult]uint64{}
	for _, result := range CheckResults() {
		results[result] = c.checks.results[result]
	}
	return results
}

// selfCheck checks the live collections one after the other, so that each has its turn about once
// in every: the one that was left alone for the longest comes next.
func (c *Collections) selfCheck(every time.Duration) {
	for {
		pause := every / time.Duration(max(1, len(c.list())))
		if !sleep(c.ctx, pause/2+rand.N(pause)) { // replicas are not to ask at the same time
			return
		}
		if r := c.longestUnchecked(); r != nil {
			c.check(r)
		}
	}
}

// longestUnchecked returns the live collection whose last check is the longest ago; nil if none is
// live.
func (c *Collections) longestUnchecked() *running {
	var found *running
	var last time.Time
	present := map[Resource]bool{}
	for _, r := range c.list() {
		present[r.resource] = true
		if _, absence := r.newest(); absence != reason.None {
			continue
		}
		if at := c.checks.stats(r.resource).At; found == nil || at.Before(last) {
			found, last = r, at
		}
	}
	c.checks.forget(func(r Resource) bool { return !present[r] })
	return found
}

// newest is the newest state if it is given to callers now. To ask is not to use the collection.
func (c *Collection) newest() (Snapshot, reason.Reason) {
	return c.view.Load().latest(time.Now(), c.limits.Staleness, 0)
}

// check checks a collection, and drops it if what it holds is not what the upstream says.
func (c *Collections) check(r *running) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	at := c.checks.cursors(r.resource)
	cmp := &comparison{
		source: source{client: c.config.Client, base: c.config.Base, resource: r.resource},
		token:  c.config.ContinueToken,

		compressor: c.config.Compressor,
	}
	rev, next, err := r.compare(ctx, cmp, at)
	if c.ctx.Err() != nil {
		return
	}
	log := c.config.Log.With("collection", r.resource.String(), "revision", rev)
	switch {
	case err == nil:
		c.checks.note(r.resource, CheckAgrees, rev, next, time.Now())
		log.Debug("self-check: agrees")
	case isMismatch(err) && r.Retired() == reason.None:
		hold := c.checks.note(r.resource, CheckMismatch, rev, next, time.Now())
		log.Error("self-check: what is kept is not what the upstream says, it is dropped", "error", err)
		c.restart(r, hold)
	default:
		c.checks.note(r.resource, CheckInconclusive, rev, next, time.Now())
		log.Info("self-check: no verdict", "error", err)
	}
}

// restart drops a collection for ever and starts another in its place, if it may be started now.
func (c *Collections) restart(r *running, hold time.Duration) {
	used := r.lastUse.Load()
	c.Invalidate(Invalidation{Ground: Past, Extent: OfCollection(r.resource), Until: After(hold)})
	if again, absence := c.start(r.resource, 0); absence == reason.None {
		again.lastUse.Store(used)
	}
}

// compare compares the newest state with the upstream. It returns the revision, and where the next
// check begins. The error is a mismatchError only if the states differed twice, with time between,
// at the same revision; any other means that there is no verdict.
func (c *Collection) compare(ctx context.Context, cmp *comparison, at cursors) (rev uint64, next cursors, err error) {
	next = at
	for try := 1; ; try++ {
		s, absence := c.newest()
		if absence != reason.None {
			return rev, next, absenceError{absence}
		}
		rev = s.Revision
		if next, err = cmp.compare(ctx, s, at); err == nil {
			return rev, next, nil
		}
		if wrong, ok := errors.AsType[*mismatchError](err); ok {
			if err = c.confirm(ctx, cmp, wrong, rev); isMismatch(err) {
				return rev, next.beginsAt(wrong.place), err
			}
			if err == nil { // and so it is not one
				err = fmt.Errorf("a mismatch was none the second time: %s", wrong.Error())
			}
		}
		if try == checkTries || !answered(err, http.StatusGone, http.StatusGatewayTimeout) || !sleep(ctx, checkRetry) {
			return rev, next, err
		}
	}
}

// confirm compares the place where the state at rev is wrong once more, after a time. It returns nil
// if it agrees then. What is wrong in memory alone is not the upstream's doing, and is wrong at once.
func (c *Collection) confirm(ctx context.Context, cmp *comparison, wrong *mismatchError, rev uint64) error {
	if wrong.place.part == inMemory {
		return wrong
	}
	if !sleep(ctx, confirmAfter) {
		return ctx.Err()
	}
	s, absence := c.view.Load().exact(rev)
	if absence != reason.None {
		return absenceError{absence} // nobody gets it any more
	}
	err := cmp.again(ctx, s, wrong.place)
	if isMismatch(err) {
		// It may have been dropped meanwhile, for the reason that makes it differ.
		if now, absence := c.view.Load().exact(rev); absence != reason.None || now.tree != s.tree {
			if absence == reason.None {
				absence = reason.Warming
			}
			return absenceError{absence}
		}
	}
	return err
}

// absenceError says that a state cannot be compared, since it is not there.
type absenceError struct{ absence reason.Reason }

func (e absenceError) Error() string { return "the state is not there any more: " + string(e.absence) }

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
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

// CheckStats are what self-checks found of one resource in one representation, in the life of the
// process: also of collections that are gone.
type CheckStats struct {
	// At is when the last check ended; zero if there was none.
	At time.Time
	// Result of the last check, at Revision.
	Result   CheckResult
	Revision uint64
	// Mismatches is how many checks found something wrong, and Mismatched when one last did; zero
	// if none did.
	Mismatches int
	Mismatched time.Time
}

const (
	// A check compares the names and revisions of namesAtOnce objects, in pages of namesPage, for
	// no longer than namesFor, and the indexes of as many; and the bytes of bytesPage objects. A
	// page has about pageBytes at most. The next check goes on from there.
	namesAtOnce = 20_000
	namesPage   = 1000
	namesFor    = 30 * time.Second
	bytesPage   = 500
	pageBytes   = 4 << 20
	// After a page of names the upstream rests so many times longer than it worked.
	restFactor = 4
	leastRest  = 50 * time.Millisecond
	// checkTries is at how many revisions the upstream is asked if it does not have one (any more,
	// or yet), and checkRetry the time between two.
	checkTries = 3
	checkRetry = 2 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 2 * time.Minute
	// confirmMargin is how long a difference is left alone after a change of the upstream would
	// have been heard of ([Config].HeardWithin), until it is looked at again.
	confirmMargin = 3 * time.Second
	// mismatchMemory is how long a mismatch counts when there is another.
	mismatchMemory = time.Hour
)

// selfChecks are the results of all checks.
type selfChecks struct {
	mu      sync.Mutex
	of      map[Resource]checkRecord
	results map[CheckResult]uint64
}

// checkRecord is what is known from checks of a resource in one representation.
type checkRecord struct {
	CheckStats
	next checkPlace
	// held is for how long nothing was kept after the last mismatch.
	held time.Duration
}

// checkPlace is where a check begins: a key for each part of it. The zero value is the beginning.
type checkPlace struct{ names, bytes string }

func (s *selfChecks) get(r Resource) checkRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[r]
}

// note takes in the result of a check. It returns how long nothing is to be kept of the resource:
// after a second mismatch in a short time the upstream may be writing the objects in other bytes
// each time.
func (s *selfChecks) note(r Resource, result CheckResult, rev uint64, next checkPlace) (hold time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, now := s.of[r], time.Now()
	if result == CheckMismatch {
		if now.Sub(rec.Mismatched) <= mismatchMemory {
			hold = min(mismatchMemory, max(seldom, 2*rec.held))
		}
		rec.Mismatches++
		rec.Mismatched, rec.held = now, hold
	}
	rec.At, rec.Result, rec.Revision, rec.next = now, result, rev, next
	s.of[r] = rec
	s.results[result]++
	return hold
}

// SelfChecks says how many checks had which result.
func (c *Collections) SelfChecks() map[CheckResult]uint64 {
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	return maps.Clone(c.checks.results)
}

// Mismatched returns what self-checks found of each resource of which one ever found something
// wrong in the life of the process, also if nothing is kept of it now.
func (c *Collections) Mismatched() map[Resource]CheckStats {
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	found := map[Resource]CheckStats{}
	for r, rec := range c.checks.of {
		if rec.Mismatches > 0 {
			found[r] = rec.CheckStats
		}
	}
	return found
}

// selfCheck checks the live collections one after the other, so that each has its turn about once
// in every: the one that was left alone for the longest comes next.
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
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	maps.DeleteFunc(c.checks.of, func(r Resource, rec checkRecord) bool { return c.all[r] == nil && rec.Mismatches == 0 })
	for r, running := range c.all {
		if _, absence := running.newest(); absence == reason.None &&
			(found == nil || c.checks.of[r].At.Before(c.checks.of[found.resource].At)) {
			found = running
		}
	}
	return found
}

// newest is the newest state if it is given to callers now, as one of the history. To ask is not to
// use the collection.
func (c *Collection) newest() (Snapshot, reason.Reason) {
	s, absence := c.view.Load().latest(time.Now(), c.limits.Staleness, 0)
	s.Heard = time.Time{}
	return s, absence
}

// check checks a collection, and drops it if it has something else than the upstream.
func (c *Collections) check(r *running) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	rev, next, err := c.compare(ctx, r, c.checks.get(r.resource).next)
	if c.ctx.Err() != nil {
		return
	}
	log := c.config.Log.With("collection", r.resource.String(), "revision", rev)
	switch {
	case err == nil:
		c.checks.note(r.resource, CheckAgrees, rev, next)
		log.Debug("self-check: agrees")
	case isMismatch(err):
		hold := c.checks.note(r.resource, CheckMismatch, rev, next)
		log.Error("self-check: what is kept is not what the upstream says, it is dropped", "error", err)
		c.restart(r, hold)
	default:
		c.checks.note(r.resource, CheckInconclusive, rev, next)
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

// compare compares the newest state with the upstream's, at a later revision if the upstream does
// not have that one. It returns the revision, and where the next check begins. The error is a
// mismatchError only if the difference was confirmed; any other means that there is no verdict.
func (c *Collections) compare(ctx context.Context, r *running, at checkPlace) (rev uint64, next checkPlace, err error) {
	cmp := &comparison{source: c.source(r.resource)}
	for try := 1; ; try++ {
		s, absence := r.newest()
		if absence != reason.None {
			return rev, at, absenceError{absence}
		}
		rev = s.Revision
		next, err = c.compareAt(ctx, cmp, s, at)
		if wrong, is := errors.AsType[*mismatchError](err); is {
			next, err = at, c.confirm(ctx, r, s, wrong)
		}
		if try == checkTries || !answered(err, http.StatusGone, http.StatusGatewayTimeout) || !clock.Sleep(ctx, checkRetry) {
			return rev, next, err
		}
	}
}

// compareAt compares a part of s by name and revision, a page of it byte by byte, and what is made
// of it in memory. It returns where to go on: also past what the upstream does not answer, so that
// one page it never answers does not keep all others from being looked at.
func (c *Collections) compareAt(ctx context.Context, cmp *comparison, s Snapshot, at checkPlace) (next checkPlace, err error) {
	next = at
	end, wrong := s.tree.Check(at.names, namesAtOnce)
	if len(wrong) > 0 {
		return at, &mismatchError{differences: wrong}
	}
	for begun := time.Now(); time.Since(begun) < namesFor; {
		asked := time.Now()
		next.names, err = cmp.names(ctx, s, next.names, namesPage, pageBytes)
		if isMismatch(err) {
			return at, err
		}
		if !clock.Sleep(ctx, max(leastRest, restFactor*time.Since(asked))) || err != nil {
			break
		}
		if next.names == "" || end != "" && next.names >= end {
			next.names = end
			break
		}
	}
	from := at.bytes
	if !s.tree.Any(from, "") {
		from = "" // the last check had the last page
	}
	limit := s.tree.PageLimit(from, bytesPage, pageBytes)
	page := s.Page(index.Query{Start: from, Limit: limit}, nil)
	if wrong = cmp.checkObjects(s.Frame, page.Objects); len(wrong) == 0 && c.config.Compressor != nil {
		wrong = c.config.Compressor.Check(s.Frame, page.Objects)
	}
	if len(wrong) > 0 {
		return at, &mismatchError{differences: wrong}
	}
	next.bytes = page.Next
	return next, errors.Join(err, cmp.page(ctx, s, from, limit))
}

// checkObjects names objects whose bytes say something else than what is kept beside them.
func (c *comparison) checkObjects(frame *wire.Frame, objects []*index.Object) (found []string) {
	e := c.source.encoding()
	for _, o := range objects {
		m, err := e.Item(o.Bytes)
		values, unreadable := e.Values(frame.Paths, o.Bytes)
		if err != nil || unreadable != nil || index.JoinKey(m.Namespace, m.Name) != o.Key || m.Revision != o.Revision ||
			!m.Labels.Equal(o.Labels) || !slices.Equal(values, o.Fields) {
			found = append(found, o.Key+" is not what its bytes say")
		}
	}
	return found[:min(len(found), index.MaxDifferences)]
}

// confirm looks at a difference again, after a time: if the upstream is what changed (a definition,
// an API server, the server of a group), that is heard of by then, and the state dropped for that
// reason. What is wrong in memory alone is so at once.
func (c *Collections) confirm(ctx context.Context, r *running, s Snapshot, wrong *mismatchError) error {
	if wrong.again != nil {
		if !clock.Sleep(ctx, c.config.HeardWithin+confirmMargin) {
			return ctx.Err()
		}
		err := wrong.again(ctx)
		if err == nil {
			return fmt.Errorf("a mismatch was none the second time: %s", wrong.Error())
		}
		if !isMismatch(err) {
			return err
		}
	}
	if doubt := r.Standing().Doubt(s, time.Now()); doubt != reason.None {
		return absenceError{doubt} // nobody gets it any more
	}
	return wrong
}

// absenceError says that a state cannot be compared, since it is not there.
type absenceError struct{ absence reason.Reason }

func (e absenceError) Error() string { return "the state is not there any more: " + string(e.absence) }

package snapshot

import (
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// maxLag is the time beyond [Skew] after which even the slowest API server has learned of a change.
	maxLag = time.Minute
	// verifyLoops is the number of collections that are verified at the same time: each verifyLoop verifies one.
	verifyLoops = 2
	// verifyPoll is the interval at which a verifyLoop looks for a collection that must be verified.
	verifyPoll = time.Second
	// verifyEvery is the shortest time from the beginning of one comparison of a collection to the beginning of the next.
	verifyEvery = 2 * time.Minute
	// verifyRetry is the pause after a comparison without a verdict.
	verifyRetry = 10 * time.Second
	// verifyTimeout is how long a required comparison may stay without a verdict. Then the collection is loaded anew.
	verifyTimeout = 10 * time.Minute
)

// verification says whether and when a collection must be compared with the upstream. Collections.mu guards it.
type verification struct {
	// requiredAt is the time of the last event that requires a comparison; zero if none is required. A state that was loaded
	// after requiredAt needs no comparison.
	requiredAt time.Time
	// notBefore is the earliest time for the next comparison.
	notBefore time.Time
	// begunAt is the time at which the last comparison began.
	begunAt time.Time
	// running reports whether the collection is being compared.
	running bool
}

// Verify requires that the collections of a scope are compared with the upstream, page by page. It is called after a change of
// the API servers: they may write the same objects in other bytes now, or have another timeline (history of etcd). what
// describes the change to people.
//
// Lists are answered from memory meanwhile, since API servers need this relief most while they are upgraded or restarted. A
// collection that differs, or that cannot be compared within verifyTimeout, is loaded anew.
func (c *Collections) Verify(scope Scope, what string) {
	now := time.Now()
	c.recordChange(Change{At: now, Scope: scope.String(), What: what, Cause: CauseServers})
	c.requireVerification(scope, now)
}

// verifyAfterSkew is called after a change of a definition or of a route. It waits until even the slowest API server has
// learned of the change, and then requires a comparison of the scope's collections.
func (c *Collections) verifyAfterSkew(scope Scope) {
	if clock.Sleep(c.ctx, Skew+maxLag) {
		c.requireVerification(scope, time.Now())
	}
}

// requireVerification requires a comparison of the scope's collections. comparePages leaves out states that were loaded after
// now.
func (c *Collections) requireVerification(scope Scope, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		if scope.selects(key) {
			r.verification.requiredAt = now
			r.verification.notBefore = r.verification.begunAt.Add(verifyEvery)
		}
	}
}

// verifyLoop verifies one collection after the other until Collections is closed.
func (c *Collections) verifyLoop() {
	for clock.Sleep(c.ctx, verifyPoll) {
		r, requiredAt := c.nextToVerify(time.Now())
		if r == nil {
			continue
		}
		compared, err := c.comparePages(r, firstKey, allPages, requiredAt)
		if c.ctx.Err() == nil {
			c.endVerification(r, requiredAt, compared.revision, err)
		}
	}
}

// nextToVerify chooses a collection that must be verified now, preferably an eager one, and marks its verification as
// running. It returns nil if there is none. requiredAt is the time at which the verification was required.
func (c *Collections) nextToVerify(now time.Time) (next *runningCollection, requiredAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		v := &r.verification
		isDue := !v.requiredAt.IsZero() && !v.running && !v.notBefore.After(now)
		if isDue && (next == nil || c.eager[key] && !c.eager[next.key]) {
			next = r
		}
	}
	if next == nil {
		return nil, time.Time{}
	}
	next.verification.running = true
	next.verification.begunAt = now
	return next, next.verification.requiredAt
}

// endVerification ends a verification that was required at requiredAt. err is the result of its comparison, whose last page
// was compared at the revision:
//
//	err                                    the collection is
//	nil: nothing differs                   kept
//	not compared, before verifyTimeout     kept, and compared again later
//	MismatchError, other objects           dropped, and started again at once
//	MismatchError, other bytes only        loaded anew; the old state is used until then
//	not compared for verifyTimeout         loaded anew; the old state is used until then
func (c *Collections) endVerification(r *runningCollection, requiredAt time.Time, revision uint64, err error) {
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	mustRetry := err != nil && !differs && time.Since(requiredAt) < verifyTimeout
	c.mu.Lock()
	v := &r.verification
	v.running = false
	if mustRetry {
		v.notBefore = time.Now().Add(source.RetryPause(verifyRetry, err))
	} else if v.requiredAt.Equal(requiredAt) { // if not, a later event requires another comparison
		v.requiredAt = time.Time{}
	}
	c.mu.Unlock()
	log := c.config.Log.With("collection", r.key.String(), "revision", revision)
	switch {
	case err == nil:
		log.Debug("verified")
	case mustRetry:
		log.Debug("not verified yet", "error", err)
	case differs && !mismatch.SameObjects:
		c.recordCheck(r, revision, err)
		const noBan = 0 // unlike a self-check: etcd may have been restored, and a state that is loaded now is right
		c.restart(r, noBan)
	case differs:
		log.Info("the API servers write the collection differently now, so it is loaded anew", "error", err)
		r.requestReload()
	default:
		log.Info("the collection could not be verified, so it is loaded anew", "error", err)
		r.requestReload()
	}
}

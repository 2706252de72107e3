package snapshot

import (
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// verifyLoops is the number of collections that are verified at the same time: each verifyLoop verifies one.
	verifyLoops = 2
	// verifyPoll is the interval at which a verifyLoop looks for a collection that must be verified.
	verifyPoll = time.Second
	// verifyEvery is the shortest time from the beginning of one comparison of a collection to the beginning of the next.
	verifyEvery = 2 * time.Minute
	// verifyRetry is the pause after a comparison without a verdict.
	verifyRetry = 10 * time.Second
	// verifyTimeout is the time after which a collection without a verdict is loaded anew.
	verifyTimeout = 10 * time.Minute
)

// verification is a comparison of a collection with the upstream that an event, such as an upgrade of the API servers, has
// required. It is repeated until it has a verdict, or until verifyTimeout. Collections.mu guards it.
type verification struct {
	// requiredAt is the time of the last event that requires a verification; zero if none is required. A state that was
	// loaded after requiredAt needs none.
	requiredAt time.Time
	// dueAt is the earliest time for the next comparison.
	dueAt time.Time
	// begunAt is the time at which the last comparison began.
	begunAt time.Time
	// running reports whether the collection is being compared.
	running bool
}

// Verify requires a verification of a scope's collections. It is called after a change of the API servers: they may write the
// same objects in other bytes now, or have another timeline (history of etcd). Collections that are loaded after the call need no
// verification.
//
// Lists are answered from memory meanwhile, since API servers need this relief most while they are upgraded or restarted.
func (c *Collections) Verify(scope Scope) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		if scope.selects(key) {
			r.verification.requiredAt = now
			r.verification.dueAt = r.verification.begunAt.Add(verifyEvery)
		}
	}
}

// verifyLoop verifies the collections that need it, one after the other, until Collections is closed.
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

// nextToVerify chooses a collection whose verification is due, preferably an eager one, and marks the verification as
// running. It returns nil if there is none.
func (c *Collections) nextToVerify(now time.Time) (next *runningCollection, requiredAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		v := &r.verification
		isDue := !v.requiredAt.IsZero() && !v.running && !v.dueAt.After(now)
		isPreferred := next == nil || c.eager[key]
		if isDue && isPreferred {
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

// endVerification handles the result, err, of a comparison that was required at requiredAt. revision is that of the last page.
//
//	no verdict before verifyTimeout   the comparison is repeated
//	no verdict after verifyTimeout    the collection is loaded anew
//	no difference                     nothing more is done
//	only bytes differ                 the collection is loaded anew; the known state stays until then
//	other objects                     the known state is dropped, and the collection is started again
func (c *Collections) endVerification(r *runningCollection, requiredAt time.Time, revision uint64, err error) {
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	hasVerdict := err == nil || differs
	mustRepeat := !hasVerdict && time.Since(requiredAt) < verifyTimeout
	c.planNextComparison(r, requiredAt, mustRepeat, err)
	log := c.config.Log.With("collection", r.key.String(), "revision", revision)
	switch {
	case mustRepeat:
		log.Debug("not verified yet", "error", err)
	case err == nil:
		log.Debug("verified")
	case !hasVerdict:
		log.Info("the collection could not be verified, so it is loaded anew", "error", err)
		r.requestReload()
	case mismatch.SameObjects:
		log.Info("the API servers write the collection differently now, so it is loaded anew", "error", err)
		r.requestReload()
	default:
		// Even a repeated mismatch is no reason for a ban here: etcd may have been restored, and a new load can be trusted.
		c.recordCheck(r, revision, err)
		c.restart(r)
	}
}

// planNextComparison records that a comparison that was required at requiredAt has ended, with err. If mustRepeat is true, the next
// one is due after a pause. If not, the next one is due only if another event has required it meanwhile.
func (c *Collections) planNextComparison(r *runningCollection, requiredAt time.Time, mustRepeat bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &r.verification
	v.running = false
	if mustRepeat {
		v.dueAt = time.Now().Add(source.RetryPause(verifyRetry, err))
	} else if v.requiredAt.Equal(requiredAt) {
		v.requiredAt = time.Time{}
	}
}

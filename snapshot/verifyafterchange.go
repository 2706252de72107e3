package snapshot

import (
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// maxLag is the time, after [Skew], in which even the slowest API server learns of a change.
	maxLag = time.Minute
	// verifyLoops is the number of goroutines in verifyLoop, each of which verifies one collection at a time.
	verifyLoops = 2
	// verifyPoll is the interval at which a verifyLoop looks for a collection that must be verified.
	verifyPoll = time.Second
	// verifyEvery is the shortest time from the beginning of one comparison of a collection to the beginning of the next.
	verifyEvery = 2 * time.Minute
	// verifyRetry is the pause after a comparison without a verdict.
	verifyRetry = 10 * time.Second
	// verifyTimeout is the time after which a collection that could not be compared is loaded anew.
	verifyTimeout = 10 * time.Minute
)

// verification says whether a collection must be compared with the upstream, since the API servers may write other bytes
// after a change. Collections.mu guards it.
type verification struct {
	// requiredAt is the time of the last event that requires a comparison; zero if none is required. States that were loaded
	// later need no comparison.
	requiredAt time.Time
	// notBefore is the time before which the collection must not be compared.
	notBefore time.Time
	// begunAt is the time at which the last comparison began.
	begunAt time.Time
	// running reports whether the collection is being compared.
	running bool
}

// Verify requires that the collections of a scope are compared with the upstream, page by page: the API servers may write the
// same objects in other bytes now, or have another timeline. what describes the change to people.
//
// Lists are answered from memory meanwhile, since API servers need this relief most while they are upgraded or restarted. A
// collection that differs, or that cannot be compared within verifyTimeout, is loaded anew.
func (c *Collections) Verify(scope Scope, what string) {
	now := time.Now()
	c.recordChange(Change{At: now, Scope: scope.String(), What: what, Cause: CauseServers})
	c.requireVerification(scope, now)
}

// verifyAfterSkew requires a comparison of the scope's collections, once the slowest API server has learned of a change of a
// definition or of a route.
func (c *Collections) verifyAfterSkew(scope Scope) {
	if clock.Sleep(c.ctx, Skew+maxLag) {
		c.requireVerification(scope, time.Now())
	}
}

// requireVerification requires a comparison of the scope's collections, if their states were loaded before now.
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
// running. It returns nil if there is none. requiredAt is that of the verification.
func (c *Collections) nextToVerify(now time.Time) (found *runningCollection, requiredAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		v := &r.verification
		isDue := !v.requiredAt.IsZero() && !v.running && !v.notBefore.After(now)
		if isDue && (found == nil || c.eager[key] && !c.eager[found.key]) {
			found = r
		}
	}
	if found == nil {
		return nil, time.Time{}
	}
	found.verification.running = true
	found.verification.begunAt = now
	return found, found.verification.requiredAt
}

// endVerification acts on err, the result of a comparison at a revision: the collection is kept, compared again later,
// restarted or loaded anew. The comparison was required at requiredAt.
func (c *Collections) endVerification(r *runningCollection, requiredAt time.Time, revision uint64, err error) {
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	mustRetry := err != nil && !differs && time.Since(requiredAt) < verifyTimeout
	c.mu.Lock()
	v := &r.verification
	v.running = false
	if mustRetry {
		v.notBefore = time.Now().Add(source.RetryPause(verifyRetry, err))
	} else if v.requiredAt.Equal(requiredAt) { // otherwise a later event requires another comparison
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
		c.restart(r, 0) // without a ban: etcd may have been restored, and a state that is loaded now is right
	case differs:
		log.Info("the API servers write the collection differently now, so it is loaded anew", "error", err)
		r.requestReload()
	default:
		log.Info("the collection could not be verified, so it is loaded anew", "error", err)
		r.requestReload()
	}
}

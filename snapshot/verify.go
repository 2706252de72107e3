package snapshot

import (
	"errors"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// maxLag is the time, in addition to [Skew], after which every API server has learned of a change.
	maxLag = time.Minute
	// maxVerifying is the number of collections that are verified at the same time.
	maxVerifying = 2
	// verifyInterval is the interval at which collections that must be verified are looked for.
	verifyInterval = time.Second
	// minVerifyInterval is the shortest time from the beginning of one comparison of a collection to the next.
	minVerifyInterval = 2 * time.Minute
	// verifyTimeout is the time after which a collection that could not be compared is loaded anew.
	verifyTimeout = 10 * time.Minute
)

// verification records whether and when a collection must be compared with the upstream, which may write other bytes now.
// Lists are answered from memory meanwhile: memory is needed most while API servers are upgraded or restarted.
// Collections.mu guards it.
type verification struct {
	// since is the time of the last event that requires a comparison. States that were loaded later need none. It is zero
	// if no comparison is required.
	since time.Time
	// notBefore is the time before which the collection must not be compared.
	notBefore time.Time
	// began is the time at which the last comparison began.
	began time.Time
	// running reports whether the collection is being compared.
	running bool
	retries wait.Backoff
}

// Verify compares the collections of a scope with the upstream, page by page, since API servers may write the same objects
// in other bytes now, or have another timeline; what says why. Lists are answered from memory meanwhile. A collection that
// differs, or that cannot be compared for ten minutes, is loaded anew.
func (c *Collections) Verify(scope Scope, what string) {
	now := time.Now()
	c.mu.Lock()
	c.changes = c.changes.with(Change{At: now, Of: scope.String(), What: what, Cause: CauseServers})
	c.mu.Unlock()
	c.mustVerify(scope, now)
}

// verifyAfterSkew waits until the slowest API server has learned of a change of a definition or of a route, and then
// verifies the collections of the scope.
func (c *Collections) verifyAfterSkew(scope Scope) {
	if clock.Sleep(c.ctx, Skew+maxLag) {
		c.mustVerify(scope, time.Now())
	}
}

// mustVerify requires a comparison of the scope's collections, if their states were loaded before now.
func (c *Collections) mustVerify(scope Scope, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		if scope.has(key) {
			v := &r.verification
			v.since = now
			v.retries = retryBackoff()
			v.notBefore = now
			if earliest := v.began.Add(minVerifyInterval); earliest.After(now) {
				v.notBefore = earliest
			}
		}
	}
}

// verifyLoop verifies one collection after the other until the process ends.
func (c *Collections) verifyLoop() {
	for clock.Sleep(c.ctx, verifyInterval) {
		if r, since := c.nextToVerify(time.Now()); r != nil {
			_, revision, err := c.compare(c.ctx, r, "", math.MaxInt, since)
			c.endVerification(r, since, revision, err)
		}
	}
}

// nextToVerify returns a collection that must be verified now, an eager one first, and its verification's since. It marks
// the verification as running. It returns nil if no collection must be verified now.
func (c *Collections) nextToVerify(now time.Time) (found *running, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	foundEager := false
	for key, r := range c.all {
		_, eager := c.eager[key]
		v := &r.verification
		switch {
		case v.since.IsZero() || v.running || v.notBefore.After(now):
			continue
		case found == nil || (eager && !foundEager):
			found = r
			foundEager = eager
		}
	}
	if found == nil {
		return nil, time.Time{}
	}
	found.verification.running = true
	found.verification.began = now
	return found, found.verification.since
}

// endVerification ends a comparison that began when the verification's since was the given time. Depending on the result,
// the collection is kept, compared again later, or loaded anew.
func (c *Collections) endVerification(r *running, since time.Time, revision uint64, err error) {
	if c.ctx.Err() != nil {
		return
	}
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	again := err != nil && !differs && time.Since(since) < verifyTimeout
	c.mu.Lock()
	r.verification.running = false
	switch {
	case again:
		r.verification.notBefore = time.Now().Add(source.RetryPause(r.verification.retries.Step(), err))
	case r.verification.since.Equal(since): // else there was another event meanwhile, which requires another comparison
		r.verification.since = time.Time{}
	}
	c.mu.Unlock()
	log := c.config.Log.With("collection", r.resource.String(), "revision", revision)
	switch {
	case err == nil:
		log.Debug("verified")
	case again:
		log.Debug("not verified yet", "error", err)
	case differs && !mismatch.SameObjects:
		c.recordCheck(r, revision, err)
		c.restart(r, 0) // without a ban: etcd may have been restored, and a state that is loaded now is right
	default:
		log.Info("the API servers write it differently now, or it could not be verified: it is loaded anew", "error", err)
		r.requestReload()
	}
}

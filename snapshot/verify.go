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
	// maxLag is the time after a change, in addition to [Skew], after which every API server has learned of it.
	maxLag = time.Minute
	// maxVerifying is the number of collections that are verified at the same time.
	maxVerifying = 2
	// verifyInterval is the interval at which collections that must be verified are looked for.
	verifyInterval = time.Second
	// minVerifyInterval is the shortest time from the begin of one comparison of a collection to the next.
	minVerifyInterval = 2 * time.Minute
	// verifyTimeout is the time after which a collection that could not be compared is loaded anew.
	verifyTimeout = 10 * time.Minute
)

// verification records whether and when a collection must be compared with the upstream, which may answer something
// else now. Lists are answered from memory meanwhile: memory is needed most while API servers are upgraded or
// restarted. Collections.mu guards it.
type verification struct {
	// since is the time before which states were loaded that must be compared; zero if none must be.
	since time.Time
	// next is the time from which on the collection may be compared. began is the time at which the last comparison began.
	next, began time.Time
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

// mustVerify makes the verifying goroutines compare what was loaded before now.
func (c *Collections) mustVerify(scope Scope, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		if scope.has(key) {
			v := &r.verification
			v.since = now
			v.retries = retryBackoff()
			v.next = now
			if earliest := v.began.Add(minVerifyInterval); earliest.After(now) {
				v.next = earliest
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

// nextToVerify returns a collection that must be verified now, eager ones first, and marks it as running; nil if there is
// none. States of it that were loaded after since need no comparison.
func (c *Collections) nextToVerify(now time.Time) (found *running, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	foundEager := false
	for key, r := range c.all {
		_, eager := c.eager[key]
		v := &r.verification
		switch {
		case v.since.IsZero() || v.running || v.next.After(now):
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

// endVerification does what follows from the result of a comparison: nothing, another one later, or a load.
func (c *Collections) endVerification(r *running, since time.Time, revision uint64, err error) {
	if c.ctx.Err() != nil {
		return
	}
	wrong, differs := errors.AsType[*source.MismatchError](err)
	again := err != nil && !differs && time.Since(since) < verifyTimeout
	c.mu.Lock()
	r.verification.running = false
	switch {
	case again:
		r.verification.next = time.Now().Add(source.RetryPause(r.verification.retries.Step(), err))
	case r.verification.since.Equal(since):
		r.verification.since = time.Time{}
	}
	c.mu.Unlock()
	log := c.config.Log.With("collection", r.resource.String(), "revision", revision)
	switch {
	case err == nil:
		log.Debug("verified")
	case again:
		log.Debug("not verified yet", "error", err)
	case differs && !wrong.SameObjects:
		c.recordCheck(r, revision, err)
		c.restart(r, 0) // without a ban: etcd may have been restored, and a state that is loaded now is right
	default:
		log.Info("the API servers write it differently now, or it could not be verified: it is loaded anew", "error", err)
		r.requestReload()
	}
}

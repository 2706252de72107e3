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
	// verifyEvery is the shortest time between the beginnings of two attempts, if a call of [Collections.Verify] requires the
	// second. For example, if an attempt begins at 12:00 and Verify is called at 12:01, the next attempt is due at 12:02.
	verifyEvery = 2 * time.Minute
	// verifyRetry is the pause after an attempt without a verdict.
	verifyRetry = 10 * time.Second
	// verifyTimeout is the time after which a collection without a verdict is loaded anew.
	verifyTimeout = 10 * time.Minute
)

// verification compares all pages of a collection with the upstream after a change of the API servers, such as an upgrade. An
// attempt compares the pages once. If an attempt ends without a verdict, another one follows, until verifyTimeout has passed.
// Collections.mu guards the fields.
type verification struct {
	// requiredAt is the time of the last call of Verify; zero if no verification is required. A state that was loaded after
	// requiredAt needs none. (Collections.Invalidate calls Verify only once every API server must have learned of the change.)
	requiredAt time.Time
	// dueAt is the earliest time for the next attempt.
	dueAt time.Time
	// begunAt is the time at which the last attempt began.
	begunAt time.Time
	// running reports whether an attempt is under way.
	running bool
}

// isDue reports whether an attempt may begin now.
func (v *verification) isDue(now time.Time) bool {
	return !v.requiredAt.IsZero() && !v.running && !v.dueAt.After(now)
}

// Verify requires a verification of a scope's collections. It is called after a change of the API servers: they may write the
// same objects in other bytes now, or have another timeline (history of etcd). Collections that are loaded after the call need
// no verification.
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

// verifyLoop makes the attempts that are due, one after the other, until Collections is closed.
func (c *Collections) verifyLoop() {
	for clock.Sleep(c.ctx, verifyPoll) {
		r, requiredAt := c.beginAttempt(time.Now())
		if r == nil {
			continue
		}
		compared, err := c.comparePages(r, firstKey, allPages, requiredAt)
		if c.ctx.Err() == nil {
			c.endAttempt(r, requiredAt, compared.revision, err)
		}
	}
}

// beginAttempt records that an attempt begins now, and returns its collection and the time at which the verification was
// required. Of the collections for which an attempt is due, it takes an eager one (see [Collections.Keep]) if there is one. It
// returns nil if no attempt is due.
func (c *Collections) beginAttempt(now time.Time) (chosen *runningCollection, requiredAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.all {
		mayReplaceChosen := chosen == nil || c.eager[key]
		if r.verification.isDue(now) && mayReplaceChosen {
			chosen = r
		}
	}
	if chosen == nil {
		return nil, time.Time{}
	}
	chosen.verification.running = true
	chosen.verification.begunAt = now
	return chosen, chosen.verification.requiredAt
}

// endAttempt handles the result, err, of an attempt. requiredAt is what beginAttempt has returned. revision is that of the last
// page.
//
//	the pages agree                   nothing more is done
//	only bytes differ                 the collection is loaded anew; the known state stays until then
//	the objects differ                the known state is dropped, and the collection is started again
//	there is no verdict yet           another attempt follows
//	no verdict within verifyTimeout   the collection is loaded anew; the known state stays until then
func (c *Collections) endAttempt(r *runningCollection, requiredAt time.Time, revision uint64, err error) {
	mismatch, isMismatch := errors.AsType[*source.MismatchError](err)
	mustRepeat := err != nil && !isMismatch && time.Since(requiredAt) < verifyTimeout
	c.planNextAttempt(r, requiredAt, mustRepeat, err)
	log := c.config.Log.With("collection", r.key.String(), "revision", revision)
	switch {
	case err == nil:
		log.Debug("verified")
	case isMismatch && mismatch.SameObjects:
		log.Info("the API servers write the collection differently now, so it is loaded anew", "error", err)
		r.requestReload()
	case isMismatch:
		// Unlike a self-check, a verification does not ban the collection after a repeated mismatch: etcd may have been
		// restored, and then a new load can be trusted.
		c.recordCheck(r, revision, err)
		c.restart(r)
	case mustRepeat:
		log.Debug("not verified yet", "error", err)
	default:
		log.Info("the collection could not be verified, so it is loaded anew", "error", err)
		r.requestReload()
	}
}

// planNextAttempt records that an attempt has ended, with err. If mustRepeat is true, the next attempt is due after a pause. If
// mustRepeat is false, the verification has ended, unless another change has required one since requiredAt.
func (c *Collections) planNextAttempt(r *runningCollection, requiredAt time.Time, mustRepeat bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.verification.running = false
	if mustRepeat {
		r.verification.dueAt = time.Now().Add(source.RetryPause(verifyRetry, err))
	} else if r.verification.requiredAt.Equal(requiredAt) {
		r.verification.requiredAt = time.Time{}
	}
}

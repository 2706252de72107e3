package snapshot

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// lagging is the time after a change, beyond [Skew], by which the slowest API server has surely learnt of it.
	lagging = time.Minute
	// maxVerifying is the number of collections that are verified at the same time.
	maxVerifying = 2
	// verifyRest is the least time from one comparison to the next that a change of API servers causes.
	verifyRest = 2 * time.Minute
	// verifyFor is after how long a collection is loaded anew that could not be verified.
	verifyFor = 10 * time.Minute
)

// verification says that a collection is to be compared with the upstream: the API servers may answer
// something else now. It is answered meanwhile: an upgrade or a restart of an API server is when memory is
// needed most. Collections.mu guards it.
type verification struct {
	// since is the time before which a state must have been loaded to be compared; zero if nothing must be.
	since time.Time
	// next is the time at which the collection may be compared next, and began when the last comparison did.
	next, began time.Time
	// underWay reports whether it is being compared.
	underWay bool
	retries  wait.Backoff
}

// Verify says that other API servers than before may answer: they may write the same objects in other
// bytes, or have another timeline. All that was loaded before is compared with what they answer, page by
// page, and is answered meanwhile. What differs is loaded anew; so is what cannot be compared for ten
// minutes.
func (c *Collections) Verify(what string) {
	now := time.Now()
	c.mu.Lock()
	c.changes = c.changes.with(Invalidation{Cause: Servers, What: what}, now)
	c.mu.Unlock()
	c.mustVerify(Scope{}, now)
}

// verifyAfter verifies what was loaded since a definition or a route changed, when also an API server
// that was slow to learn of it has done so.
func (c *Collections) verifyAfter(i Invalidation, changed time.Time) {
	if !clock.Sleep(c.ctx, i.Until.after+lagging) {
		return
	}
	c.mu.RLock()
	again := c.bans[banKey{i.Cause, i.Scope}].until.After(changed.Add(i.Until.after)) // so it will be verified later
	c.mu.RUnlock()
	if !again {
		c.mustVerify(i.Scope, time.Now())
	}
}

// mustVerify has what was loaded before now verified.
func (c *Collections) mustVerify(scope Scope, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, running := range c.all {
		if scope.has(r) {
			v := &running.verification
			v.since, v.next, v.retries = now, now, retryBackoff()
			if rested := v.began.Add(verifyRest); rested.After(now) {
				v.next = rested
			}
		}
	}
	for range maxVerifying {
		select {
		case c.toVerify <- struct{}{}:
		default: // all know already
		}
	}
}

// verifyLoop verifies one collection after the other until the process ends.
func (c *Collections) verifyLoop() {
	for c.ctx.Err() == nil {
		r, pause := c.nextToVerify(time.Now())
		if r != nil {
			since, revision, err := c.verify(r)
			c.endVerification(r, since, revision, err)
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-c.toVerify:
		case <-timer.C:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

// nextToVerify returns the collection that is to be verified next, eager ones first, and marks it as under way; or
// for how long there is none.
func (c *Collections) nextToVerify(now time.Time) (found *running, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	foundEager := false
	pause = time.Hour
	for of, r := range c.all {
		_, eager := c.eager[of]
		switch {
		case r.verification.since.IsZero() || r.verification.underWay:
		case r.verification.next.After(now):
			pause = min(pause, r.verification.next.Sub(now))
		case found == nil || eager && !foundEager:
			found, foundEager = r, eager
		}
	}
	if found != nil {
		found.verification.underWay, found.verification.began = true, now
	}
	return found, pause
}

// verify compares all of a collection, byte by byte, page by page, each page as it is in the newest state by then.
// It returns since when the collection had to be verified, and the revision of the last page. What was loaded
// since then needs no comparison.
func (c *Collections) verify(r *running) (since time.Time, revision uint64, err error) {
	c.mu.RLock()
	since = r.verification.since
	c.mu.RUnlock()
	comparer := &source.Comparison{Source: c.source(r.resource)}
	from, tries := "", 0
	for {
		v := r.view.Load()
		switch {
		case v.unavailable != reason.None:
			return since, 0, unavailableError{v.unavailable}
		case v.loaded.After(since):
			return since, v.To, nil
		}
		s, asked := v.state(), time.Now()
		limit := s.tree.PageLimit(from, bytesPage, pageBytes)
		err = comparer.Page(c.ctx, s.state(), from, limit)
		if wrong, ok := errors.AsType[*source.MismatchError](err); ok {
			err = c.confirm(c.ctx, r, s, wrong)
		}
		switch {
		case source.Answered(err, http.StatusGone, http.StatusGatewayTimeout) && tries < checkTries:
			tries++ // the upstream does not have that revision any more, or yet
		case err != nil:
			return since, s.Revision, err
		default:
			tries = 0
			if from = s.Page(index.Query{Start: from, Limit: limit}, nil).Next; from == "" {
				return since, s.Revision, nil
			}
		}
		if !clock.Sleep(c.ctx, max(leastRest, restFactor*time.Since(asked))) {
			return since, s.Revision, context.Cause(c.ctx)
		}
	}
}

// endVerification decides what follows from a comparison.
func (c *Collections) endVerification(r *running, since time.Time, revision uint64, err error) {
	if c.ctx.Err() != nil {
		return
	}
	wrong, differs := errors.AsType[*source.MismatchError](err)
	again := err != nil && !differs && time.Since(since) < verifyFor
	c.mu.Lock()
	r.verification.underWay = false
	switch {
	case again:
		r.verification.next = time.Now().Add(source.Wanted(r.verification.retries.Step(), err))
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
	case differs && !wrong.OnlyBytes:
		c.conclude(r, revision, c.checks.next(r.resource), err)
		c.restart(r, 0) // without a pause: etcd may have been restored, and what is loaded now is right
	default:
		log.Info("the API servers write it differently now, or it could not be verified: it is loaded anew", "error", err)
		r.loadAnew()
	}
}

package snapshot

import (
	"context"
	"time"
)

// probeTimeout bounds a probe. It is longer than kube-apiserver lets a request wait in a queue of
// priority and fairness (a quarter of --request-timeout, 15 s by default), so that a probe which
// is rejected there is seen as the 429 that it is.
const probeTimeout = 30 * time.Second

// inquiry is a question to the upstream how far it is, or for its newest state.
type inquiry struct {
	// number counts a collection's inquiries. It says which requests came before one, whatever
	// clocks do.
	number uint64
	// asked is when it was sent.
	asked time.Time
}

// inquire numbers an inquiry that is sent afterwards.
func (c *Collection) inquire() inquiry { return inquiry{c.inquiries.Add(1), time.Now()} }

// probed is the revision that the upstream had when it was asked for it, or later.
type probed struct {
	revision uint64
	inquiry
}

// probe reads the upstream's current revision and holds it against the floor.
func (f *feed) probe(ctx context.Context, is inquiry) (probed, error) {
	floor := f.collection.floor()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, rev, err := f.source.probe(ctx)
	if err != nil {
		return probed{}, err
	}
	return probed{rev, is}, f.collection.observe(rev, floor)
}

// heard takes in the outcome of a question. The stream goes on if it returns ended.
func (f *feed) heard(a outcome[probed]) (ending, error) {
	now := time.Now()
	if a.err == nil {
		f.fresh.answered(now, a.value.revision, f.collection.expect(a.value))
		return ended, nil
	}
	switch {
	case lost(a.err):
		return broken, a.err
	case troubled(a.err):
		// To open watches again would not help it. The state grows old meanwhile, as it should.
		f.log.Info("probe refused", "error", a.err)
		f.fresh.refused(now, wanted(f.fresh.rhythm.again, a.err))
	case isAnswer(a.err):
		f.log.Info("probe refused, the watch is resumed", "error", a.err)
		return broken, nil // the watch would not be permitted either, or somebody else answers
	default:
		f.log.Info("probe not answered", "error", a.err)
		f.fresh.unanswered(now)
	}
	return ended, nil
}

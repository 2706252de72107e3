package snapshot

import (
	"context"
	"time"
)

// prober runs one probe at a time beside the reading of a stream.
type prober struct {
	probe   func(context.Context) (probed, error)
	answers chan probeAnswer // nil while no probe is under way
	began   time.Time        // the last one
	cancel  context.CancelFunc
}

// probed is the revision that the upstream had when it was asked for it, or later.
type probed struct {
	revision uint64
	asked    time.Time
}

// probeAnswer is the outcome of a probe.
type probeAnswer struct {
	probed
	err error
}

// start starts a probe, if none is under way.
func (p *prober) start(ctx context.Context) {
	if p.answers != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p.cancel, p.began = cancel, time.Now()
	out := make(chan probeAnswer, 1)
	p.answers = out
	go func() {
		defer cancel()
		answer, err := p.probe(ctx)
		out <- probeAnswer{answer, err}
	}()
}

// stop waits for the probe under way, so that none speaks for a time that is over.
func (p *prober) stop() {
	if p.answers != nil {
		p.cancel()
		<-p.answers
	}
}

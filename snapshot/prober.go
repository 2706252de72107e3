package snapshot

import (
	"context"
	"time"
)

// prober asks the upstream how far it is, once at a time, beside the reading of a stream or alone.
type prober struct {
	probe   func(context.Context) (probed, error)
	answers chan probeAnswer // nil while no probe is under way
	cancel  context.CancelFunc
	// began is when the last one began, and spared until when the upstream wants none.
	began, spared time.Time
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

// ask probes, and waits for the answer. None is under way.
func (p *prober) ask(ctx context.Context) (probed, error) {
	p.start(ctx)
	a := <-p.answers
	p.answers = nil
	return a.probed, a.err
}

// spare says that the upstream wants to be left alone for a time.
func (p *prober) spare(d time.Duration) { p.spared = time.Now().Add(d) }

// untilDemand is how long to wait for a probe because somebody waits, whose answer must not be older
// than that.
func (p *prober) untilDemand() time.Duration {
	if p.answers != nil {
		return demandPause
	}
	return max(demandPause-time.Since(p.began), time.Until(p.spared))
}

// untilDue is how long to wait for the next probe by the rhythm, if the state is as new as heard.
func (p *prober) untilDue(r rhythm, heard time.Time) time.Duration {
	return max(r.next(time.Now(), p.began, heard), time.Until(p.spared))
}

// stop waits for the probe under way, so that none speaks for a time that is over.
func (p *prober) stop() {
	if p.answers != nil {
		p.cancel()
		<-p.answers
		p.answers = nil
	}
}

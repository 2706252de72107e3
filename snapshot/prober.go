package snapshot

import "context"

// prober runs one probe at a time beside the reading of a stream.
type prober struct {
	probe   func(context.Context) (uint64, error)
	answers chan probed // nil while no probe is under way
	cancel  context.CancelFunc
}

// probed is the outcome of a probe.
type probed struct {
	revision uint64
	err      error
}

// start starts a probe, if none is under way.
func (p *prober) start(ctx context.Context) {
	if p.answers != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p.cancel = cancel
	out := make(chan probed, 1)
	p.answers = out
	go func() {
		defer cancel()
		revision, err := p.probe(ctx)
		out <- probed{revision, err}
	}()
}

// stop waits for the probe under way, so that none speaks for a time that is over.
func (p *prober) stop() {
	if p.answers != nil {
		p.cancel()
		<-p.answers
	}
}

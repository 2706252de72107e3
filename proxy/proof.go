package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
)

// proven finds the newest state, and waits for the proof that this state holds everything that was
// written before the first probe after want.lastProbe was sent.
func (h *Handler) proven(
	ctx context.Context, collection *snapshot.Collection, want wanted,
) (snapshot.Snapshot, reason.Reason) {
	ctx, span := observe.RecordOf(ctx).Step(ctx, observe.SpanProof)
	defer span.End()
	begun, told := time.Now(), h.Observer.Proving(ctx)
	snap, why := collection.Fresh(ctx, want.lastProbe, h.proofWait(want))
	sent, answered := snap.Heard, snap.Answered
	if why != reason.None {
		sent, answered = collection.Probing(), time.Now()
	}
	span.SetAttributes(observe.Proof(told(why), begun, sent, answered)...)
	return snap, why
}

// WatchProofWait is how long a streaming list waits in all: until the state is loaded and, if it
// asks for the newest, for the proof. Where thousands begin at the same moment, the probe and the
// feed's stream wait for CPU behind them; and the upstream would have to encode the whole state for
// each that is forwarded.
const WatchProofWait = 10 * time.Second

// proofWait is how long a request waits for the proof.
func (h *Handler) proofWait(want wanted) time.Duration {
	if want.watch {
		return WatchProofWait
	}
	return h.ConsistentWait
}

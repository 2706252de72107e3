package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
)

const (
	// longestWait is the time for which a list waits, at most, until its resource is loaded, and longestStreamWait a
	// streaming list, with the proof if it asks for the newest state. Where thousands come at the same moment,
	// the upstream would have to encode the whole state for each that is forwarded. A streaming list waits as
	// long at kube-apiserver, until the watch cache there has come far enough.
	longestWait       = 10 * time.Second
	longestStreamWait = 30 * time.Second
	// startPause is the time for which a request waits before it asks once more for a collection, where many are begun.
	startPause = 200 * time.Millisecond
)

// proven finds the newest state, and waits for the proof that this state holds everything that was
// written before the first probe after want.lastProbe was sent.
func (h *Handler) proven(
	ctx context.Context, collection *snapshot.Collection, want *wanted,
) (snapshot.Snapshot, reason.Reason) {
	ctx, span := observe.Step(ctx, observe.SpanProof)
	defer span.End()
	over := h.Observer.Proving(ctx)
	want.seat.Pause()
	snap, why := collection.Consistent(ctx, want.lastProbe, h.proofWait(want))
	span.SetAttributes(observe.Proof(over(why)))
	return snap, why
}

// proofWait is the time for which a request waits for the proof.
func (h *Handler) proofWait(want *wanted) time.Duration {
	if want.watch {
		return longestStreamWait
	}
	return h.ConsistentWait
}

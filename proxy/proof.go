package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
)

const (
	// longestWait is the longest time for which a list waits until its resource is loaded. Where thousands come at the
	// same moment, the upstream would have to encode the whole state for each that is forwarded.
	longestWait = 10 * time.Second
	// longestStreamWait is the longest time for which a streaming list waits for the load and the proof together. It
	// waits as long at kube-apiserver, until the watch cache there has come far enough.
	longestStreamWait = 30 * time.Second
	// startPause is the time between two tries to start a collection, where many are started.
	startPause = 200 * time.Millisecond
)

// proven returns the newest state. It waits for the proof that this state holds everything that was
// written before the first probe after want.lastProbe was sent.
func (h *Handler) proven(
	ctx context.Context, collection *snapshot.Collection, want *wanted,
) (snapshot.Snapshot, reason.Reason) {
	ctx, span := observe.StartStep(ctx, observe.SpanProof)
	defer span.End()
	report := h.Observer.MeasureProof(ctx)
	want.seat.Pause()
	snap, why := collection.Consistent(ctx, want.lastProbe, h.proofWait(want))
	span.SetAttributes(observe.ProofResult(report(why)))
	return snap, why
}

// proofWait returns the longest time for which a request waits for the proof.
func (h *Handler) proofWait(want *wanted) time.Duration {
	if want.watch {
		return longestStreamWait
	}
	return h.ConsistentWait
}

package proxy

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
)

// proven finds the newest state, and waits for the proof that this state holds everything that was
// written before the list came.
func (h *Handler) proven(
	ctx context.Context, resource snapshot.Resource, want wanted,
) (*snapshot.Collection, snapshot.Snapshot, reason.Reason) {
	ctx, span := observe.RecordOf(ctx).Step(ctx, observe.SpanProof)
	defer span.End()
	collection, absence := h.Collections.Use(resource)
	if absence != reason.None {
		return nil, snapshot.Snapshot{}, absence
	}
	begun, over := time.Now(), h.Observer.Proving(ctx)
	snap, absence := collection.Fresh(ctx, h.proofWait(want))
	over(absence)
	if absence == reason.None {
		span.SetAttributes(observe.Proof(snap.Heard.Sub(begun), snap.Answered.Sub(snap.Heard))...)
	}
	return collection, snap, absence
}

// proofWait is how long a request waits for the proof. A forwarded watch costs the upstream as long
// as it lasts, so for watches the proof always pays.
func (h *Handler) proofWait(want wanted) time.Duration {
	if want.watch {
		return watchWait
	}
	return h.ConsistentWait
}

package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// upstreamHold is what keeps collections from starting because of the API servers that stand
// behind the upstream. Collections.mu guards it.
type upstreamHold struct {
	// unknown: nobody has looked yet which API servers there are.
	unknown bool
	// until is when the upstream will have settled if it does not change again.
	until time.Time
	// disagree are the resources in whose version the API servers do not agree.
	disagree map[schema.GroupResource]struct{}
}

func newUpstreamHold(unknown bool) upstreamHold {
	return upstreamHold{unknown: unknown, disagree: map[schema.GroupResource]struct{}{}}
}

// holds returns why nothing is kept of a resource; Known if it may be.
func (h *upstreamHold) holds(resource schema.GroupResource, now time.Time) Absence {
	if _, disagree := h.disagree[resource]; disagree || now.Before(h.until) {
		return Upstream
	}
	if h.unknown {
		return Warming
	}
	return Known
}

// UpstreamKnown ends the wait of Config.AwaitUpstream: from now on a change of the API servers
// would be heard of. Before that one could pass unseen between a collection's first state and
// the first look at them.
func (c *Collections) UpstreamKnown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upstream.unknown = false
}

// UpstreamChanged drops all that is held, at once, and keeps nothing before Config.Settle has
// passed without another change: other API servers may write the same objects in other bytes
// (new defaults, new fields, another encoding), and tell nobody. An answer that was looked up
// before may still be written; it was true then.
func (c *Collections) UpstreamChanged() {
	c.mu.Lock()
	c.upstream.until = time.Now().Add(c.config.Settle)
	c.mu.Unlock()
	c.endAll(Upstream, func(Resource) bool { return true })
}

// Disagree says whether the API servers disagree in which version they write a resource. While
// they do, nothing of it is kept; when they agree again its collections may start anew.
func (c *Collections) Disagree(resource schema.GroupResource, disagree bool) {
	c.mu.Lock()
	if disagree {
		c.upstream.disagree[resource] = struct{}{}
	} else {
		delete(c.upstream.disagree, resource)
	}
	c.mu.Unlock()
	if disagree {
		c.endAll(Upstream, func(r Resource) bool { return r.GroupResource() == resource })
	}
}

// Rebuild drops all that is held of a resource, because the upstream writes it in another version
// from now on. It may be loaded again at once.
func (c *Collections) Rebuild(resource schema.GroupResource) {
	c.endAll(Upstream, func(r Resource) bool { return r.GroupResource() == resource })
}

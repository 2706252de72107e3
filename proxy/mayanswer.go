package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/snapshot"
)

// ground is what an answer from memory stands on, as it is at one moment.
type ground struct {
	at time.Time
	// entry is what the catalog knows of the resource, if it is known.
	entry discovery.Entry
	known bool
	// schema is why definitions forbid an answer, or empty.
	schema reason.Reason
	// memory is what the collection stands on, with its epochs.
	memory snapshot.Standing
	// allowed: the review's yes counts.
	allowed bool
}

// mayAnswer says whether a state that was found for a resource of this entry may be written on this
// ground, or why not. It is asked once and last, after everything that was waited for.
func mayAnswer(entry discovery.Entry, state snapshot.Snapshot, on ground) reason.Reason {
	switch {
	case on.schema != "":
		return on.schema
	case !on.known || on.entry != entry:
		return reason.Warming
	}
	if doubt := on.memory.Doubt(state, on.at); doubt != reason.None {
		return doubt
	}
	if !on.allowed {
		return reason.ReviewFailed
	}
	return ""
}

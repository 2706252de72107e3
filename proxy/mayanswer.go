package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/snapshot"
)

// conditions are everything that an answer from memory depends on, as they are at one moment.
type conditions struct {
	at time.Time
	// entry is what the catalog knows about the resource, if it knows the resource.
	entry discovery.Entry
	known bool
	// schema is why definitions forbid an answer, or empty.
	schema reason.Reason
	// memory is what the collection depends on, with its epoch.
	memory snapshot.Validity
	// allowed: the review's yes still counts.
	allowed bool
}

// mayAnswer says whether a state that was found may still be written: entry is the resource as it
// was when the state was looked up, on are the conditions now. If not, it returns the reason. It is
// called once, after the last wait.
func mayAnswer(entry discovery.Entry, state snapshot.Snapshot, on conditions) reason.Reason {
	switch {
	case on.schema != reason.None:
		return on.schema
	case !on.known || on.entry != entry:
		return reason.Warming
	}
	if why := on.memory.WhyNot(state, on.at); why != reason.None {
		return why
	}
	if !on.allowed {
		return reason.ReviewFailed
	}
	return reason.None
}

package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
)

// conditions are everything that an answer from memory depends on, as they are at one moment.
type conditions struct {
	at time.Time
	// entry is what is known about the resource, and unknown why nothing is; None if it is.
	entry   cluster.Entry
	unknown reason.Reason
	// memory is what the collection depends on, with its epoch.
	memory snapshot.Validity
	// allowed reports whether the review's yes still counts.
	allowed bool
}

// mayAnswer reports whether a state that was found may still be written, on the conditions that are now. If not,
// it returns the reason. It is called once, after the last wait.
func mayAnswer(a *answer, on *conditions) reason.Reason {
	switch {
	case on.unknown != reason.None:
		return on.unknown
	case on.entry != a.entry:
		return reason.Warming
	}
	if why := on.memory.WhyNot(a.snapshot, on.at); why != reason.None {
		return why
	}
	if !on.allowed {
		return reason.ReviewFailed
	}
	return reason.None
}

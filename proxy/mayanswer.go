package proxy

import (
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
)

// conditions has all that an answer from memory depends on, as it is at one moment.
type conditions struct {
	at time.Time
	// entry is the catalog's entry of the resource. unknown is the reason why there is none, or None.
	entry   cluster.Entry
	unknown reason.Reason
	// memory is the validity of the collection's states.
	memory snapshot.Validity
	// allowed reports whether the review's yes still counts.
	allowed bool
}

// mayAnswer returns None if a state that was found may still be written under the present conditions. It is called once,
// after the last wait.
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

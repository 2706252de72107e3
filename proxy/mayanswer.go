package proxy

import (
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot"
)

// ground is what an answer from memory stands on, as it is at one moment.
type ground struct {
	// entry is what the catalog knows of the resource, if it is known.
	entry Entry
	known bool
	// schema is why definitions forbid an answer, or empty.
	schema policy.Reason
	// doubt is why the collection would not give this state, or Known.
	doubt snapshot.Absence
	// allowed: the review's yes counts.
	allowed bool
}

// mayAnswer says whether an answer that was found for a resource of this entry may be written on this
// ground, or why not. It is asked last, after everything that was waited for.
func mayAnswer(found Entry, on ground) policy.Reason {
	switch {
	case on.schema != "":
		return on.schema
	case !on.known || on.entry != found:
		return policy.ReasonWarming
	case on.doubt != snapshot.Known:
		return policy.Reason(on.doubt)
	case !on.allowed:
		return policy.ReasonReviewFailed
	}
	return ""
}

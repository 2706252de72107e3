package snapshot

import (
	"errors"
	"maps"
	"net/http"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/tally"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// lossOf returns the reason for an error after which a state is lost, or must be loaded anew.
func lossOf(err error) reason.Reason {
	var contradiction wire.InconsistencyError
	var other otherTimelineError
	switch {
	case errors.Is(err, errObject):
		return reason.FirstObject
	case errors.Is(err, errOutOfDate), errors.Is(err, errUnproven):
		return reason.Upstream
	case errors.As(err, &other):
		return reason.WentBack
	case errors.As(err, &contradiction):
		return reason.Contradiction
	case errors.Is(err, wire.ErrForm):
		return reason.Form
	case errors.Is(err, errFull):
		return reason.Memory
	case source.Answered(err, http.StatusGone):
		return reason.Expired
	case source.Answered(err, http.StatusNotFound):
		return reason.NotFound
	case source.Answered(err, http.StatusForbidden):
		return reason.NotPermitted
	}
	return reason.Other
}

// countsLocked returns what counts for a resource. Those of resources that have no collection now
// are forgotten where there are too many.
func (c *Collections) countsLocked(r CollectionKey) *tally.Counts {
	if counts := c.counts[r]; counts != nil {
		return counts
	}
	if len(c.counts) >= 2*maxCollections {
		maps.DeleteFunc(c.counts, func(other CollectionKey, _ *tally.Counts) bool { return c.all[other] == nil })
	}
	counts := &tally.Counts{}
	c.counts[r] = counts
	return counts
}

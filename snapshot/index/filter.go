package index

import (
	"strings"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Filter chooses the objects of a watch, and makes its events from changes. It is safe for concurrent use.
type Filter struct {
	prefix  string // All chosen objects have keys with this prefix.
	key     string // If it is set, only the object with this key is chosen.
	matcher matcher
}

// NewFilter returns the filter of a query's scope, name and selectors. Envelope.CanSelect must be true for q.Fields.
func NewFilter(envelope *wire.Envelope, q Query) Filter {
	filter := Filter{prefix: q.Scope.Prefix(), matcher: *newMatcher(envelope, q)}
	if q.Name != "" {
		filter.key = filter.prefix + q.Name
	}
	return filter
}

// matches reports whether an object is chosen. It reads none of the object's bytes.
func (f *Filter) matches(o *Object) bool {
	if f.key != "" && o.Key != f.key {
		return false
	}
	return strings.HasPrefix(o.Key, f.prefix) && f.matcher.matches(o)
}

// Event returns the type and the object of a watch's event for a change, or "" and nil if the watch gets no event. The event
// must be sent with the revision of the change.
func (f *Filter) Event(c Change) (eventType string, object *Object) {
	// If c.Deleted, c.After is the last state of the deleted object.
	matchedBefore := c.Before != nil && f.matches(c.Before)
	matchesNow := c.After != nil && !c.Deleted && f.matches(c.After)
	switch {
	case matchesNow && matchedBefore:
		return wire.Modified, c.After
	case matchesNow:
		return wire.Added, c.After
	case matchedBefore && c.Deleted:
		return wire.Deleted, c.After
	case matchedBefore:
		return wire.Deleted, c.Before // The client sees the object as it was when it last matched.
	}
	return "", nil
}

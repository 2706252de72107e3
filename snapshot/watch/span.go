package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Span is the history of a collection at one moment: the states at the revisions in [From, To].
type Span struct {
	Versions index.History
	From, To uint64
}

// RetainedAfter returns the lowest revision after which all changes are known. The version that is the state at From is
// still in Versions. If it was loaded, changes are known from its revision on. If a change made it, that change is known,
// too: so changes are known from the version before it on, even if that one was forgotten. Two examples for From 25:
//
//	versions                                       RetainedAfter
//	loaded at 20, changed at 30                    20
//	changed at 20 and 30, the one at 10 forgotten  10
func (s *Span) RetainedAfter() uint64 {
	i := s.Versions.FirstAfter(s.From) - 1
	if i < 0 { // there are no versions yet: the span has just begun
		return s.From
	}
	atFrom := s.Versions.At(i)
	switch {
	case atFrom.Change.After == nil: // it was loaded
		return atFrom.Revision
	case i == 0:
		return s.Versions.Forgotten()
	}
	return s.Versions.At(i - 1).Revision
}

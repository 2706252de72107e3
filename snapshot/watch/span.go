package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Span is the history of a collection at one moment: the states at the revisions in [From, To].
type Span struct {
	Versions index.History
	From, To uint64
}

// RetainedAfter returns the lowest revision after which all changes are known. It depends on the version that is the state at
// From. If that version was loaded, all changes after it are known. If a change made it, that change is known as well, and so
// all changes after the version before it. Two examples for From 25:
//
//	versions                                                  RetainedAfter
//	loaded at 20, changed at 30                               20
//	changed at 10, 20 and 30, the version at 10 is forgotten  10
func (s *Span) RetainedAfter() uint64 {
	i := s.Versions.FirstAfter(s.From) - 1
	if i < 0 { // The span has just begun and has no versions yet.
		return s.From
	}
	atFrom := s.Versions.At(i)
	switch {
	case atFrom.Change.After == nil: // The version was loaded.
		return atFrom.Revision
	case i == 0:
		return s.Versions.Forgotten()
	}
	return s.Versions.At(i - 1).Revision
}

package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Span is the history of a collection at one moment: the states at the revisions in [From, To].
type Span struct {
	Versions index.History
	From, To uint64
}

// RetainedAfter returns the lowest revision after which all changes are known: the revision of the version at From if that was
// loaded, and the revision of the version before it if a change led to it, since that change is known, too. For From 25:
//
//	versions                                                  version at From  RetainedAfter
//	loaded at 20, changed at 30                               20               20
//	changed at 10, 20 and 30                                  20               10
//	changed at 10, 20 and 30, the version at 10 is forgotten  20               10
func (s *Span) RetainedAfter() uint64 {
	i := s.Versions.FirstAfter(s.From) - 1
	if i < 0 { // The span has just begun and has no versions yet.
		return s.From
	}
	atFrom := s.Versions.At(i)
	switch {
	case atFrom.Change.After == nil: // The version was loaded.
		return atFrom.Revision
	case i == 0: // The version before was forgotten.
		return s.Versions.Forgotten()
	}
	return s.Versions.At(i - 1).Revision
}

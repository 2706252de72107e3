package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Span is the history of a collection at one moment: the states at all revisions from From to To. It has a version for the
// state that was loaded, and one for each change since, until the history forgets the oldest versions. The state at a revision
// is that of the last version at or before the revision.
type Span struct {
	Versions index.History
	From, To uint64
}

// RetainedAfter returns the lowest revision after which all changes are known. For example, From is 25, so the state at From is
// the version of 20:
//
//	versions                                                    RetainedAfter
//	loaded at 20, changed at 30                                 20: the changes that led to the loaded state are unknown
//	changed at 10, 20 and 30                                    10: the version of 20 has the change at 20
//	changed at 10, 20 and 30, and the one of 10 was forgotten   10, for the same reason
func (s *Span) RetainedAfter() uint64 {
	// The version with the index i has the state at From.
	i := s.Versions.FirstAfter(s.From) - 1
	if i < 0 { // The span has just begun and has no versions yet.
		return s.From
	}
	atFrom := s.Versions.At(i)
	switch {
	case atFrom.Change.After == nil: // The version was loaded.
		return atFrom.Revision
	case i == 0: // The version before was forgotten, but its revision is known.
		return s.Versions.Forgotten()
	}
	return s.Versions.At(i - 1).Revision
}

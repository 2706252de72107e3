package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Span is the history of a collection at one moment: the states at all revisions from From to To. It has a version for each
// change. The state at a revision is that of the last version at or before the revision.
type Span struct {
	Versions index.History
	From, To uint64
}

// RetainedAfter returns the lowest revision after which all changes are known. It depends on the version at From:
//
//   - If that version was loaded, RetainedAfter is its revision.
//   - If a change led to that version, RetainedAfter is the revision of the version before, since the change is known, too.
//
// For example, From is 25, so the version at From is the one of 20:
//
//	versions                                                  RetainedAfter
//	loaded at 20, changed at 30                               20
//	changed at 10, 20 and 30                                  10
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
	case i == 0: // The version before was forgotten.
		return s.Versions.Forgotten()
	}
	return s.Versions.At(i - 1).Revision
}

package index

// VersionSize returns the number of bytes that a version takes in addition to its objects. Its change has replaced the object
// before by the object after. before is nil if the object is new, and after is nil if it was removed.
func (t Tree) VersionSize(before, after *Object) int64 {
	switch {
	case before != nil && after != nil:
		return replacingSize
	case t.byField == nil:
		return membershipSize
	}
	return membershipSize + indexSize
}

// The parts of a VersionSize, as TestVersionSize measures them.
const (
	replacingSize  = 2000 // An object was replaced: its run and nodes of the tree are copied.
	membershipSize = 2700 // An object came or went: signatures are copied, too.
	indexSize      = 3000 // The object came to the index or left it, too: nodes of the index are copied.
)

package index

// The number of bytes that a change of a tree copies, as TestVersionSize measures it.
const (
	replaceSize     = 2000 // An object is replaced: its run and nodes of the tree are copied.
	addOrRemoveSize = 2700 // An object is added or removed: signatures are copied, too.
	indexSize       = 3000 // An object is added to the index or removed from it: nodes of the index are copied.
)

// VersionSize returns the number of bytes that a version takes in addition to its objects. The version's change has replaced
// the object before by the object after. before is nil for an object that was added, and after for one that was removed.
func (t Tree) VersionSize(before, after *Object) int64 {
	switch {
	case before != nil && after != nil:
		return replaceSize
	case t.byField == nil:
		return addOrRemoveSize
	}
	return addOrRemoveSize + indexSize
}

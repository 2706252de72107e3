// Package index keeps the objects of a collection in order, version by version.
//
// A [Tree] is one state: the objects by key, in runs of neighbours, and an index of one field. Clones share what they
// have in common, so a version costs only the memory of its changes. A [History] has the versions of a collection by
// revision. A [Query] is answered with a [Page].
//
// Objects (object.go) are in trees (tree.go). page.go, selector.go and filter.go choose among them; differences.go
// compares them with the upstream's.
//
// Object, Query and Page belong here and not to package snapshot, since the trees hold objects and answer queries with
// pages.
package index

// Package index keeps the objects of a collection in order, version by version.
//
// A [Tree] is one state: the objects by key, in runs of neighbours, and an index of one field. Clones share what they
// have in common, so a version costs only the memory of its changes. A [History] has the versions of a collection by
// revision. A [Query] is answered with a [Page].
//
// object.go has the objects, tree.go and history.go keep them. page.go answers queries, filter.go is for watches. Both
// use selector.go, which in turn uses signature.go for labels.
package index

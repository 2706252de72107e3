// Package index keeps the objects of a collection in order, version by version.
//
// A [Tree] is one state: the objects by key, in runs of neighbours, and an index of one field. Clones share what they have in
// common, so a version costs little more memory than its change. A [History] has the versions of a collection by revision. A
// [Query] is answered with a [Page].
//
// object.go has the objects and key.go their keys. tree.go (with run.go) and history.go keep them, and versionsize.go says what
// a version costs. page.go answers queries. filter.go chooses objects for it and for watches, and uses signature.go for labels.
// bucket.go is for watches. pagelimit.go bounds the pages of self-checks.
package index

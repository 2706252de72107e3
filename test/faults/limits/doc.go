// Package limits drives listproxy to its limits and measures what that costs. The figures are in
// docs/results/faults.md; the tests check that what is promised there holds.
//
//	make limits
//
// kube-apiserver and etcd are real, and so are the objects, the namespaces and the collections. In
// two cases the hop in front of kube-apiserver answers instead: for 10,000 watches, for which
// kube-apiserver would need the machine for itself, and for 429s, which have to come when the test
// needs them. listproxy is built without the race detector, since its memory is measured.
package limits

// Package limits drives listproxy to where something ends, and says what that costs: figures for
// docs/reliability.md, and the demands that hold there.
//
//	make limits
//
// kube-apiserver and etcd are real, and so are the objects, the namespaces and the collections. In
// two cases the hop before kube-apiserver answers in its place: 10,000 watches, for which it would
// need the machine for itself, and 429s, which it would say when it liked. listproxy is built
// without the race detector, since its memory is measured.
package limits

// Package limits drives listproxy to where something ends, and says what that costs: figures for
// docs/reliability.md, and the demands that hold there.
//
//	make limits
//
// kube-apiserver and etcd are real. Where they would need the machine for themselves (10,000 watches,
// objects in 5,000 namespaces) the hop before kube-apiserver answers in its place. listproxy is built
// without the race detector, since its memory is measured.
package limits

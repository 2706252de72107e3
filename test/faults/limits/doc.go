// Package limits drives listproxy near its limits: what an idle connection, a forwarded watch and an
// answer that nobody reads cost has a bound, history goes before memory, and a 429 is the caller's.
//
// kube-apiserver and etcd are real, and so are the objects. In two cases the hop in front of
// kube-apiserver answers instead: for watches, and for 429s, which have to come when the test needs
// them. listproxy is built without the race detector, since its memory is measured.
package limits

// Package limits drives listproxy near its limits: what an idle connection, a forwarded watch and an
// answer that nobody reads cost has a bound, with which the chart reckons.
//
// kube-apiserver is real, but for watches and big answers the hop in front of it answers in its place.
// listproxy is built without the race detector, since its memory is measured.
package limits

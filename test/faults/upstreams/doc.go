// Package upstreams runs one or several listproxies in front of several kube-apiservers, breaks one
// after the other, and looks for wrong answers, lost requests, and clients that see an older state
// after a newer one.
//
//	clients ──► (balancer) ──► listproxy, listproxy ──► (balancer) ──► kube-apiserver 2, kube-apiserver 3 ──► etcd
//	writers, and the oracle ──► kube-apiserver 1, which is never broken ────────────────────────────────────┘
//
// All are processes of their own, except the balancers (package test/harness/hop), which are plain
// TCP.
//
// Clients ask for any state, for a state not older than the newest write and than what they saw,
// for an exact revision, and for pages; in JSON, protobuf and as metadata; with a token from a
// token file and with a service account's token. Every answer from memory is compared, byte for
// byte, with what kube-apiserver 1 says for the revision that it names. A list of the newest state
// (one that asks for neither an exact revision nor the next page) must contain everything that the
// API servers had --staleness-bound and a second before the request was sent (package test/oracle).
// With API servers of two versions there is an undisturbed one of each, and an answer must be
// entirely as one of them writes it.
//
// Nothing is compacted, and nobody's rights change. So it is a mistake, too, if a caller's token or
// a continue token is refused.
//
// Tests wait for what must come; no case passes because of a time. The times reported are measured,
// and compared with limits that only an outage exceeds.
//
//	go test -race ./test/faults/upstreams -v
//	go test -race ./test/faults/upstreams -v -upstreams.all        # every case, an upgrade as well: part of make faults
package upstreams

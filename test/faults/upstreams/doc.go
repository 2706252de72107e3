// Package upstreams runs listproxy before several kube-apiservers, and several listproxies, and
// looks for a wrong answer, a request that is lost, and a client that goes back in time.
//
//	askers ──► (balancer) ──► listproxy, listproxy ──► --upstream ──► kube-apiserver 2, kube-apiserver 3 ──► etcd
//	writers, and the oracle ──► kube-apiserver 1, which nothing happens to ────────────────────────────────┘
//
// All are processes of their own, except the balancer (package test/harness/hop), which is plain
// TCP.
//
// Askers want any state, one not older than the newest write and than what they saw, one exactly,
// and pages; in JSON, protobuf and as metadata; with a token of the token file and one of a service
// account. Every answer from memory is compared, byte for byte, with what an undisturbed API server
// says for the revision that it names. The newest state (a list that asks for neither one revision
// nor the next page) may not be of a revision that the API servers had left longer than the
// --staleness-bound, and a second, before the request was sent: package test/oracle. With API
// servers of two versions there is an undisturbed one of each, and an answer must be all of what
// one of them says.
//
// Nothing is compacted, and nobody's rights change: that a token, of a user or of a page, is
// refused is a mistake, too.
//
// What must come is waited for; no case passes because of a time. The times reported are measured,
// and held against limits that only an outage exceeds.
//
//	go test -race ./test/faults/upstreams -v
//	go test -race ./test/faults/upstreams -v -upstreams.all        # every case, an upgrade as well: part of make faults
package upstreams

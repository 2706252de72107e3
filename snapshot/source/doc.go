// Package source has the requests of a feed to kube-apiserver: lists and watches (source.go, query.go, stream.go, purpose.go),
// requests that learn how kube-apiserver writes a resource (learn.go, headers.go) or that compare a state with its lists
// (comparepage.go), and probes for its current revision (probe.go). [Freshness] decides when to send a probe (freshness.go,
// freshnessevents.go, probeschedule.go). It is a state machine that reads no clock and does nothing by itself.
package source

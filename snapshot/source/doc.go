// Package source has the requests that a feed sends to kube-apiserver:
//
//	lists and watches                                     source.go, query.go, stream.go, purpose.go
//	requests that learn how kube-apiserver writes a list  learn.go, headers.go
//	comparisons of a state with kube-apiserver's lists    comparepage.go
//	probes for kube-apiserver's current revision          probe.go
//
// [Freshness] decides when to send a probe (freshness.go, freshnessevents.go, probeschedule.go). It is a state machine that
// reads no clock and does nothing by itself.
package source

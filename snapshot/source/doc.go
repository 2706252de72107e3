// Package source is what a feed asks kube-apiserver, and when: lists and watches (source.go, stream.go, kind.go), how
// it writes a resource (learn.go, headers.go), whether a state is what it says (comparison.go), and its current
// revision. [Freshness] decides when to ask for that. It is a state machine that reads no clock and does nothing by
// itself; the tests check its rules on random sequences of events.
package source

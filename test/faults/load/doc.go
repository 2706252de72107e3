// Package load has the clients of tests of faults: [Load] writes to kube-apiserver and asks listproxy for lists
// ([Question]), [Verifier] compares the answers with kube-apiserver's, or with a [LostHistory], and [Tally] counts what
// was seen.
package load

// Package load is what tests of faults have in common: who writes at kube-apiserver and asks
// listproxy for lists ([Load]), what is asked ([Question]), what is right ([Verifier], with a
// [Past] where kube-apiserver has forgotten), and what was seen ([Tally]).
package load

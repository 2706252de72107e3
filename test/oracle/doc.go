// Package oracle knows what is right, for tests.
//
// A [List] says of which revisions a list may be, and a [Watch] what a watch must tell: these judge what comes
// from memory in every suite. What is true they are told: by a [Ledger] of confirmed writes where there is a real
// kube-apiserver, by the etcd of package inmemory where there is none. [Difference] shows where two bodies differ. A
// [Queue] lets tests compare answers later, while they ask for others.
package oracle

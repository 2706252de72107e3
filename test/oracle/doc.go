// Package oracle decides for tests what is right.
//
// A [List] says which revisions a list may have, and a [Watch] which events a watch must have. They judge what comes from
// memory in every suite. They get the truth from a [Ledger] of confirmed writes in front of a real kube-apiserver, and from
// the etcd of package inmemory elsewhere. [Difference] shows where two bodies differ. A [Queue] lets tests compare answers
// later, while they ask for others.
package oracle

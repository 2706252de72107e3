// Package faults breaks everything around listproxy that can break. Meanwhile clients go on asking, and each wrong answer is
// counted. There must be none.
//
//	clients, informers, watchers ─► balancer ─► listproxy ─► hop ─► kube-apiserver ─► etcd
//	writers, verifier ──────────────────────────────────────────────────┘
//
// listproxy, kube-apiserver and etcd are processes. The balancer (plain TCP) and the hop, which cuts, delays, refuses,
// falsifies and drops what passes (package test/harness/hop), run in the test. Writers and the verifier reach kube-apiserver
// directly. In some cases (pairCases) a second balancer and two more kube-apiservers replace the hop; nothing happens to the
// first kube-apiserver, which writers and the verifier use.
//
// # A case
//
//	go test ./test/faults -faults.all -run TestFaults/apiserver_killed -v
//
// A case is an entry of a table ([faultCase]): a fault, and what may happen while it lasts. Without -faults.all only one of
// each kind runs.
//
// Each case has its own listproxy. When answers come from memory, the case causes its fault and ends it. Then it waits until
// listproxy answers from memory again, and all followers have the true state. At least one answer from memory must be
// compared during the fault, unless the case says why there is none. Deadlines only end a wait for something that must come;
// no case passes because of a time.
//
// The cases are those that need real processes. TestModel in cmd/listproxy and the tests of package snapshot have a slow,
// lying or restored upstream, a suspended machine, and a wall clock that is set.
//
// # Terms
//
//   - stage: a control plane that cases share, with places for some cases at a time
//   - scene: everything around one case: its stage, its listproxies (replicas), its clients, and what they have counted
//   - hit: an answer from memory
//   - window: the time from the beginning of a fault to its end
//   - recovery: the time until every collection is in memory again, with what was written after the fault
//   - fleeting object: an object that is created and deleted at once
//   - timeline: the history of one etcd. An etcd that is emptied, or restored from a snapshot, begins a new one
//
// # What is right
//
// Clients ask for lists of any version (resourceVersion=0), for lists not older than the newest write, for exact revisions, and
// for consistent lists. They ask for whole lists, for one namespace, and page by page; in JSON, in protobuf and as metadata.
// For an answer from memory these rules hold:
//
//   - It has the bytes that kube-apiserver sends for the same list at the same revision. With API servers of two versions there
//     is an undisturbed one of each, and each object of the answer must have the bytes that one of them sends.
//   - If kube-apiserver has lost that revision, since etcd was compacted or replaced, the answer is compared with a record. It
//     must have the same objects, by UID and revision, in the same order. The record has a list at every revision. It is read
//     from kube-apiserver just before the loss, while writers pause.
//   - It is not older than the request allows. With a --staleness-bound of 6 s, it has each write that was confirmed 7 s or
//     longer before the request: the bound and a second of tolerance. In an outage it may be older, and so may lists at an
//     exact revision and next pages. The ledger knows when revisions were written.
//   - It is not of an old timeline after an answer of the same collection was of the new one. (When a replaced etcd is back,
//     and until a feed learns of it, an answer may be of either.)
//
// Followers list and then watch through listproxy, and must reach the true state. Some are informers of client-go: streaming or
// paginated, with label selectors and without. Others are strict watchers, which also check that each event fits their state,
// and that every write has its event. If etcd was replaced, only followers that start after that must reach the true state:
// kube-apiserver itself sends nothing to a watch from a revision that it has not reached.
//
// listproxy's self-checks run all the time, and must find no mismatch, unless etcd was replaced.
package faults

// Package faults breaks everything around listproxy that can break, while clients go on asking, and
// counts wrong answers. There must be none.
//
//	clients, informers, watchers ──► balancer ──► listproxy ──► hop ──► kube-apiserver ──► etcd
//	writers, and the oracle ───────────────────────────────────────────────┘
//
// All are processes of their own, except the balancer (plain TCP) and the hop, which cuts, delays,
// refuses, falsifies and drops what passes (package test/harness/hop). Writers and the oracle reach
// kube-apiserver directly. In some cases (pairCases) a second balancer is in place of the hop, before
// two further kube-apiservers: then nothing happens to the one that writers and the oracle reach.
//
// # A case
//
//	go test ./test/faults -faults.all -run TestFaults/apiserver_killed -v
//
// A case is an entry of a table: a fault, how long it lasts, and what may happen meanwhile. Without
// -faults.all only one of each kind runs. With it the upgrade of API servers runs too. What becomes of a
// suspended machine, and of a wall clock that is set, is held by the tests of package snapshot.
//
// Each case has a listproxy of its own. It begins when answers come from memory, causes its fault,
// ends it, waits until listproxy answers from memory again, and then until all clients know the
// true state. It reports what was compared, how much came from memory, and how long that took. Some
// answers from memory must be compared while the fault lasts, unless the case says why there are
// none. Deadlines are generous, and only end a wait for something that must come; no case passes
// because of a time.
//
// In the cases answered_late and half_refused, the API server is overloaded: requests of listproxy's own
// account are answered 20 s late, or half of them are refused with 429, while watches go on. In these,
// and where connections are cut, no revision may be lost that was known before.
//
// memory_bounded runs listproxy without the race detector, with its memory limited by the kernel.
//
// What a feed makes of a slow, lying or restored upstream is held by the model in cmd/listproxy and by
// the tests of package snapshot; here is what only real processes show.
//
// # What is right
//
// Clients ask for the newest state, for one not older than the newest write, and for old ones
// exactly; whole, of one namespace, or page by page; in JSON, protobuf and as metadata. An answer
// from memory is
//
//   - compared, byte for byte, with what kube-apiserver says for the revision that it names; with API
//     servers of two versions there is an undisturbed one of each, and an answer must be entirely as
//     one of them writes it;
//   - compared with a record if kube-apiserver has lost that revision (compacted, or etcd
//     replaced): the objects in it, by UID and revision, in their order. The record consists of
//     lists at every revision, read directly while the writers pause, just before etcd is compacted
//     or replaced;
//   - not older than it was asked to be. A list of the newest state (one that asks for neither an
//     exact revision nor the next page) must contain everything that the API server had
//     --staleness-bound and a second before the request was sent. The ledger knows which revisions
//     were written when;
//   - not of the old past once another answer of the same collection was of the new one. (Between
//     the return of a replaced etcd and the moment when a feed learns of it, nobody can know.)
//
// Clients that list and then watch through listproxy must end with the true state: informers of
// client-go, streaming and paginated, with selectors whose choice changes, and a watcher of this
// package's own, which also demands that events fit its list and each other, and that it is told of every
// write: of one kind, objects live for a moment only. If etcd was replaced, this
// is demanded only of clients that start after that: kube-apiserver itself sends nothing to a watch from
// a revision that it has not reached.
//
// listproxy's self-checks go on all the time, and must find nothing wrong, unless etcd was replaced.
package faults

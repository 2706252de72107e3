// Package faults breaks everything around listproxy that can break, while clients go on asking, and
// counts wrong answers. There must be none.
//
//	clients, informers, watchers ──► balancer ──► listproxy ──► hop ──► kube-apiserver ──► etcd
//	writers, and the oracle ───────────────────────────────────────────────┘
//
// All are processes of their own, except the balancer (plain TCP) and the hop, which cuts, delays,
// refuses, falsifies and drops what passes (package test/harness/hop). Writers and the oracle reach
// kube-apiserver directly.
//
// # A case
//
//	go test ./test/faults -faults.all -run TestFaults/apiserver_killed -v
//
// Without -faults.all only one of each kind runs. With it the cases of clocks run too. Their
// listproxy has a package time of its own (harness.BuildJumpingProxy), which is built when the
// first of them needs it and takes minutes.
//
// Each case has a listproxy of its own. It begins when answers come from memory, causes its fault,
// ends it, waits until listproxy answers from memory again, and then until all clients know the
// true state. It reports what was compared, how much came from memory, and how long that took. Some
// answers from memory must be compared while the fault lasts, unless the case says why there are
// none. Deadlines are generous, and only end a wait for something that must come; no case passes
// because of a time.
//
// In the cases slow and refusing, the API server is overloaded: requests of listproxy's own account
// are answered 20 s late, or half of them are refused with 429, while watches go on. That lasts
// forty seconds, or ten minutes with -faults.all (-faults.overload says otherwise). These cases
// have a table of their own: how often each collection was listed whole, how often it was lost, and
// how many of the revisions known before are still known. Some collections change all the time.
// Another was last written before kube-apiserver was started, so kube-apiserver's watch cache does
// not have that change (410): this collection must not be loaded again.
//
// memory_bounded runs listproxy without the race detector, with its memory limited by the kernel.
//
// # What is right
//
// Clients ask for the newest state, for one not older than the newest write, and for old ones
// exactly; whole, of one namespace, or page by page; in JSON, protobuf and as metadata. An answer
// from memory is
//
//   - compared, byte for byte, with what kube-apiserver says for the revision that it names;
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
// client-go, streaming and paginated, and a watcher of this package's own, which also demands that
// events fit its list and each other. If etcd was replaced, this is demanded only of clients that
// start after that: kube-apiserver itself sends nothing to a watch from a revision that it has not
// reached.
package faults

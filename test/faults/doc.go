// Package faults breaks everything around listproxy that can break, while clients go on asking, and
// counts wrong answers. There must be none.
//
//	askers, informers, watchers ──► balancer ──► listproxy ──► hop ──► kube-apiserver ──► etcd
//	writers, and the oracle ──────────────────────────────────────────────┘
//
// All are processes of their own, except the balancer (plain TCP) and the hop, which cuts, delays,
// refuses, falsifies and swallows what passes (package test/harness/hop). The way of writers and of
// the oracle is never disturbed.
//
// # A case
//
//	go test ./test/faults -faults.all -run TestFaults/apiserver_killed -v
//
// Without -faults.all only one of each kind runs. With it also those of clocks, whose listproxy has
// a package time of its own (harness.BuildJumpingProxy): it is built when the first of them needs
// it, which takes minutes.
//
// Each case has a listproxy of its own. It begins when answers come from memory, causes its fault,
// ends it, waits for listproxy to be back, and then for all clients to know the true state. It
// reports what was compared, how much came from memory, and how long that took. While the fault
// lasts, too, something that came from memory has to be compared, unless the case says why nothing
// comes. Only the end of what must come is bounded by a deadline, a generous one; no case passes
// because of a time.
//
// In the cases slow and refusing, the API server has too much to do. What listproxy asks for by
// itself is answered 20 s late, or half of it is refused with 429, while watches go on. That lasts
// forty seconds, or ten minutes with -faults.all (-faults.overload says otherwise). These cases
// have a table of their own: how often each collection was asked for as a whole, how often it was
// lost, and how many of the revisions known before are still known. Some collections change all the
// time. Another was last written before kube-apiserver was started, so its watch cache cannot tell
// that change (410): this collection must not be loaded again.
//
// memory_bounded is a listproxy without the race detector, under a bound of the kernel on its
// memory.
//
// # What is right
//
// Askers want the newest state, one not older than the newest write, and old ones exactly; whole,
// of one namespace, or page by page; in JSON, protobuf and as metadata. An answer from memory is
//
//   - compared, byte for byte, with what kube-apiserver says for the revision that it names;
//   - held against a record of the past where kube-apiserver has lost that revision (compacted, or
//     etcd replaced): the objects in it, by UID and revision, in their order. The record is made of
//     lists at every revision, read directly while the writers pause, just before the past is taken
//     away;
//   - not older than it was asked to be; and one of the newest state, which is every list that asks
//     for neither one revision nor the next page, not too old: when the request was sent, the API
//     server had left its revision at most the --staleness-bound and a second before. The ledger
//     knows which revisions were written when;
//   - no longer of the past once another answer of the same collection was of the present. (Between
//     the return of a replaced etcd and the moment when a feed hears of it, nobody can know.)
//
// Followers, which list and then watch through listproxy, must end with the true state: informers
// of client-go, streaming and paginated, and a watcher of this package's own, which also demands
// that events fit to its list and to each other. Where etcd was replaced, this is asked only of
// those that start after that: a watch at a revision of the future is silent at kube-apiserver
// itself.
package faults

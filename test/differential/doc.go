// Package differential sends the same requests to listproxy and to kube-apiserver while objects change, and compares the
// answers: the status, the headers and the bytes of the body, and of a watch each event.
//
// # Terms
//
//   - The two sides are called direct (kube-apiserver) and proxy (listproxy).
//   - A [question] is a request for a list or a watch. Its [semantics] say which state it asks for.
//   - A walk asks for the pages of a list, one after the other.
//   - An answer from memory is a hit. Others are forwarded: they are kube-apiserver's.
//
// # What a list is compared with
//
// Some requests have the same answer at any time: exact revisions, continuations, and requests that are refused. They are
// sent to both sides. The answers to others change with time. These requests are sent to listproxy, whose answer names a
// revision, and kube-apiserver is asked for the same list at exactly that revision. The revision must not be too old:
//
//	semantics        what the answer must have
//	not-older-than   at least the revision that the request names
//	consistent       every write that was confirmed before the request
//	any, a hit       every write that was confirmed [bound] before the request, as --staleness-bound promises
//	any, forwarded   no requirement
//
// kube-apiserver reads two kinds of requests in a special way:
//
//   - A list with a revision and a limit, and without a resourceVersionMatch, is Exact. But if it selects a single key
//     (metadata.name= in one namespace), it is read from etcd at the newest revision, and the revision that it names is only a
//     lower bound. Such a list is compared as a consistent one.
//   - A first page of pods with spec.nodeName= is read from an index, unless the page is exact. It has no token if no more pods
//     of the node follow, while an exact page has a token if any pods follow. So the page may lack the token if everything else
//     is equal, and kube-apiserver says that no pods of the node follow.
//
// # What a watch is compared with
//
// At any moment, two watches have received different parts of the same events, so they are not compared with each other.
// Each is compared with a [track]: a state that kube-apiserver lists at an exact revision, and the events that it sends from
// there, with the same selectors and in the same representation. The initial events of a watch must be the state at one
// revision, in the order of keys, and if a bookmark ends them, at the revision of that bookmark. After them, each later
// event must come once and in order, up to what had been written before the comparison. kube-apiserver's own watch is
// checked in the same way. If it fails, the check itself is wrong ([wrongReference]).
//
// Bookmarks must have the same bytes as kube-apiserver's, except for the revision. They come only if the request allows them.
// Their revision is never below the one that the request names, and never above that of a later event.
//
// An ERROR in a watch must have the same bytes at both sides, except for kube-apiserver's current revision. An odd watch must
// have the same status and headers, and must end at both sides or at neither.
//
// # What must come from memory
//
// [question.shouldHit] decides for lists. Lists of cached resources must come from memory in JSON, indented or not, in
// protobuf, and as PartialObjectMetadata in all three. They may have any label selector, and select by metadata.name and
// metadata.namespace. Lists that are not of metadata may also select by the fields of the type, and, for built-in resources,
// ask for a shard.
//
// Among those that need not come from memory are odd requests, the single key above, and a page with metadata.namespace=
// across namespaces. (kube-apiserver begins the latter in that namespace, and continues it in the whole resource.)
//
// [watchRequest.shouldHit] decides for watches. Watches from a recent revision come from memory, and streaming lists at
// resourceVersion=0 or a revision, if lists with the same selectors come from memory.
//
// # What may differ
//
//   - The continue token of a page that one side took from etcd and the other from a cache. The token from etcd lacks the slash
//     before its start key. Both tokens are decoded, and such pages are counted.
//   - Date, X-Kubernetes-Pf-* and Cache-Status; Content-Length, which depends on the hops in between; and Audit-Id if the
//     client sent none.
//   - That a revision is not reached yet, if kube-apiserver's cache reached it between the two answers. Both sides are asked
//     again.
//   - The ages in a Table.
//   - listproxy may answer a list at an exact revision that kube-apiserver has lost to a compaction. Such answers are counted
//     (report.lost).
//
// # Parts
//
// Package cluster fills a control plane with resources of many shapes, changes them all the time, and adds each write to a
// ledger. A [generator] makes random lists and watches, by representation, scope, selector, semantics and user. A
// [comparator] sends them, follows pages, compares, and counts in a [report]. Two thirds of the lists come from a [deck],
// which has a card for each [class] (representation, selector, scope, semantics, page) and each resource in focus. The other
// lists and all watches are random, odd ones included.
//
// All randomness comes from a seed, which is printed. Only the interleaving of requests and writes differs between runs.
package differential

// Package differential sends the same requests to listproxy and to kube-apiserver while objects are
// created, changed and deleted, and compares the answers: status, headers, and bodies byte for byte, of
// watches each event.
//
// # What a list is compared with
//
// Some requests always have the same answer: an exact revision, a continuation, something that is
// refused. These are sent to both sides. The answer to others (any, not-older-than, consistent)
// changes with time. These are sent to listproxy; its answer names a revision, and kube-apiserver
// is asked for the same list at exactly that revision. Besides, a not-older-than must not be older
// than it was asked to be. An any from memory must contain every write that was acknowledged
// [bound] before the request, as listproxy's --staleness-bound promises; for a forwarded
// any nobody promises anything.
//
// Two kinds of request have a meaning of their own at kube-apiserver. A list of a single key
// (metadata.name= in one namespace) with a revision and a limit, which otherwise means exactly that
// revision, is read from etcd as it is now: it is treated as a consistent. And a first page of pods
// with spec.nodeName= that is not exact comes from an index, and has no token if no more pods of
// that node follow, while its exact form has a token as long as there are keys. Such a page may
// lack the token if everything else is equal and the API server, asked what follows for the node,
// has nothing.
//
// # What a watch is compared with
//
// Two watches are never answered at the same moment, so their events are not compared with each
// other. Each is compared with a [track]: a state that kube-apiserver lists at an exact revision,
// and the events that it sends from there, with the same selectors and in the same representation.
// The initial events of a stream must be the state at one revision, in the order of keys; if a
// bookmark ends them, at the revision of that bookmark. After them, each event above that revision
// must come once and in order, up to what had been written when the comparison was made.
// kube-apiserver's own answer is checked in the same way; if it fails, this package demands
// something wrong ([wrongReference]).
//
// Bookmarks must have the same bytes as kube-apiserver's, except the revision. They come only if
// the request asks for them. Their revision is never below the one asked for, and never above that
// of a later event.
//
// An error in the stream (ERROR) must have the same bytes at both, except the revision that the API
// server has reached. An odd request must be answered with the same status and headers, and the stream
// must end at both or at neither.
//
// # What must come from memory
//
// [question.memory] says it of lists. All that is cached comes from memory in JSON, indented or not, in protobuf, and as
// PartialObjectMetadata in all three; with any label selector, with metadata.name and metadata.namespace, and, except for
// metadata, with the fields of the type. So do shards of built-in resources, except for metadata. These lists need not:
// a page with metadata.namespace= across namespaces, which kube-apiserver begins in that namespace and continues in the
// whole resource; the single key above; and odd requests.
//
// [watchRequest.memory] says it of watches: from a recent revision, and streaming lists of resourceVersion=0 and of a
// revision, if lists with the same selectors are answered from memory.
//
// # What may differ
//
//   - The continue token of a page that one side took from etcd and the other from a cache: only
//     the first lacks the slash in front of its start key. Both are decoded, and counted.
//   - Date, Content-Length (how a body is framed depends on the hops that it passed),
//     X-Kubernetes-Pf-* and Cache-Status; and Audit-Id if the client sent none.
//   - That a revision is not reached yet, if kube-apiserver's own cache of the resource reached it
//     between the two answers: both sides are asked again.
//   - The ages in a Table, which follow the clock.
//   - An exact revision that the API server has lost to compaction may still be answered; such
//     answers are counted separately ([expired]).
//
// # Parts
//
// Package cluster has a control plane with resources of many shapes, changes them all the time, and
// notes each write in a ledger. A [generator] makes up lists and watches, by form, scope, selector,
// semantics and user. A [comparator] makes requests, walks through pages, compares, and counts in a
// [report]. Two thirds of the lists come from a [deck], which has a card for each [class]
// (representation, selector, scope, semantics, page) and each of the resources in focus; the others, and
// all watches, are random, odd ones included.
//
// Everything random comes from a seed, which is printed; only the order in which requests and
// writes interleave differs between runs.
package differential

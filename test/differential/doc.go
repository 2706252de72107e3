// Package differential sends the same requests to listproxy and to kube-apiserver while objects are
// created, changed and deleted, and compares the answers: status, headers, and bodies byte for
// byte.
//
// # What an answer is compared with
//
// Some requests always have the same answer: an exact revision, a continuation, something that is
// refused. These are sent to both sides. The answer to others (Any, NotOlderThan, MostRecent)
// changes with time. These are sent to listproxy; its answer names a revision, and kube-apiserver
// is asked for the same list at exactly that revision. Besides, a NotOlderThan must not be older
// than it was asked to be. An Any from memory must contain every write that was acknowledged
// [Options].Bound before the request, as listproxy's --staleness-bound promises; for a forwarded
// Any nobody promises anything.
//
// Two kinds of request have a meaning of their own at kube-apiserver. A list of a single key
// (metadata.name= in one namespace) with a revision and a limit, which otherwise means exactly that
// revision, is read from etcd as it is now: it is treated as a MostRecent. And a first page of pods
// with spec.nodeName= that is not Exact comes from an index, and has no token if no more pods of
// that node follow, while its Exact form has a token as long as there are keys. Such a page may
// lack the token if everything else is equal and the API server, asked what follows for the node,
// has nothing ([Report] counts these).
//
// # What must come from memory
//
// [Question].Answerable says it: JSON, indented or not, protobuf, and PartialObjectMetadata in all
// three, of everything that is cached; with any label selector, with metadata.name and
// metadata.namespace, and, except for metadata, with the fields of the type. These need not: a page
// with metadata.namespace= across namespaces, which kube-apiserver begins in that namespace and
// continues in the whole resource; the single key above; and odd requests.
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
//     answers are counted separately ([Report].Expired).
//
// # Parts
//
// [Cluster] is a control plane with resources of many shapes; [Cluster.Churn] changes them all the
// time and notes each write in a [Ledger]. A [Comparator] makes requests, walks through pages,
// compares, and counts in a [Report]. Two thirds of the requests come from a deck, which has a card
// for each [Class] (representation, selector, scope, semantics, page) and each of the resources in
// focus; the others are random, odd ones included.
//
// Everything random comes from a seed, which is printed; only the order in which requests and
// writes interleave differs between runs.
package differential

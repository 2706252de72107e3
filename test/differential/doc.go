// Package differential asks listproxy and kube-apiserver the same questions while objects are
// created, changed and deleted, and compares the answers: status, headers, and bodies byte for
// byte.
//
// # What an answer is compared with
//
// A question that has one answer for ever (an exact revision, a continuation, something that is
// refused) is put to both sides. A question whose answer moves (Any, NotOlderThan, MostRecent) is
// put to listproxy; its answer names a revision, and kube-apiserver is asked for the same list at
// exactly that revision. Beyond that, a NotOlderThan must not be older than it was asked to be, and
// an Any from memory must contain every write that had been answered [Options].Bound before it was
// asked for. That is what listproxy's --staleness-bound promises; of an Any that it forwards nobody
// promises anything.
//
// Two questions are not what they seem. A single key (metadata.name= in one namespace) with a
// revision and a limit, which elsewhere means exactly that revision, is read from etcd as it is
// now: it is treated as a MostRecent. And a first page of pods with spec.nodeName= that is not
// Exact comes from an index in kube-apiserver, and ends without a token where no more of that node
// follow, while its Exact form has a token as long as there are keys. Such a page may lack the
// token, if all else is equal and the API server, asked what follows for the node, has nothing
// ([Report] counts these).
//
// # What is to come from memory
//
// [Question].Answerable, by Question.memory: JSON, indented or not, protobuf, and
// PartialObjectMetadata in all three, of all that is cached; with any label selector, with
// metadata.name and metadata.namespace, and, but not for metadata, with the fields of the type.
// Not: a page with metadata.namespace= across namespaces, which kube-apiserver reads in that
// namespace and goes on from in the whole resource, the single key above, and whatever is odd.
//
// # What may differ
//
//   - The continue token of a page that one side took from etcd and the other from a cache: only
//     the first lacks the slash in front of its start key. Both are decoded, and counted.
//   - Date, Content-Length (how a body is framed depends on the hops it passed), X-Kubernetes-Pf-*
//     and Cache-Status; and Audit-Id where the client sent none.
//   - That a revision is still to come, where one side's answer is from before kube-apiserver's own
//     cache of the resource came that far, and the other's is not: both are asked again.
//   - The ages in a Table, which go by the clock: both sides are asked again. Ages that differ each
//     time may be apart by as long as it took to ask both, and no longer.
//   - An exact revision that the API server has lost to compaction may still be answered; such
//     answers are counted apart ([Report].Expired).
//
// # Parts
//
// [Cluster] is a control plane with resources of many shapes; [Cluster.Churn] changes them all the
// time and notes each write in a [Ledger]. A [Comparator] makes up requests, walks pages, compares,
// and tells a [Report]. Two thirds of the requests come from a deck, which has a card for each
// [Class] (representation, selector, scope, semantics, page) and each of the resources in focus;
// the others are whatever comes to mind, odd ones included. [Cluster.Freshness] writes to the API
// server and looks for it through listproxy, and so sees a cache that stands still.
//
// Everything random comes from a seed, which is printed; only the interleaving is chance.
package differential

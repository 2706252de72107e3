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
// an Any must contain every write that is older than [Options].Bound.
//
// # What may differ
//
//   - The continue token of a page that one side took from etcd and the other from a cache: only
//     the first lacks the slash in front of its start key. Both are decoded, and counted.
//   - Date, Content-Length (how a body is framed depends on the hops it passed), X-Kubernetes-Pf-* and
//     Cache-Status; and Audit-Id where the client sent none.
//   - The ages in a Table, which go by the clock: both sides are asked again.
//   - An exact revision that the API server has lost to compaction may still be answered; such
//     answers are counted apart ([Report].Expired).
//
// # Parts
//
// [Cluster] is a control plane with resources of many shapes; [Cluster.Churn] changes them all the
// time and notes each write in a [Ledger]. A [Comparator] makes up requests, walks pages, compares,
// and tells a [Report]. [Cluster.Freshness] writes to the API server and looks for it through
// listproxy, and so sees a cache that stands still.
//
// Everything random comes from a seed, which is printed; only the interleaving is chance.
package differential

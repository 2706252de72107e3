// Package inmemory is a control plane in memory: an etcd, and kube-apiservers in front of it that lag, hang, stop, start again
// and are replaced. It is for tests in a bubble of testing/synctest, without sockets, in the bubble's time.
//
// It answers lists and watches of one custom resource as kube-apiserver does. It has no protobuf, no tables and no writes over
// HTTP, which are tested with a real kube-apiserver.
//
// [Etcd] keeps its whole history, so that [Etcd.List] and [Etcd.Events] can say what the right answer was at any time.
//
// Terms:
//
//   - A timeline is a history of etcd. When etcd is restored from a backup, a new timeline begins, whose revisions after that
//     of the backup are given a second time.
//   - The release of a server is its version, which an update changes.
//   - A form is how a server writes a widget. It depends on the definition that the server knows, and on its release.
package inmemory

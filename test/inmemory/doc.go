// Package inmemory is a control plane in memory: an etcd, and kube-apiservers in front of it that lag, lie
// silent, end, start again and are replaced. It is for tests in a bubble of testing/synctest: there is no
// socket, and time is that of the bubble.
//
// It does what list-contract and watch-contract say of a kube-apiserver, as far as one custom resource
// goes. What it does not do (protobuf, tables, writes over HTTP) is tested with a real kube-apiserver.
//
// [Etcd] remembers all that ever happened, so that [Etcd.List] and [Etcd.Changes] can say what the right
// answer would have been.
package inmemory

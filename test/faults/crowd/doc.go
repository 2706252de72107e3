// Package crowd is thousands of watchers that come and go ([Crowd]): plain watches from a recent
// revision, streaming lists, node agents, watches of a namespace, a label or one object, in JSON,
// protobuf and as metadata. They live for seconds. Some are ended by their client, some by
// timeoutSeconds, and some hardly read.
//
// Most watchers only count bytes. The others are strict: the events that they get are compared with
// the [History], which is read from etcd itself and so does not depend on kube-apiserver or
// listproxy. No event may be false, missing, repeated or out of order, in streams from memory and
// in forwarded ones.
package crowd

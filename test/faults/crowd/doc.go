// Package crowd is thousands of watchers that come and go ([Crowd]): plain watches from a recent
// revision, streaming lists, node agents, watches of a namespace, a label or one object, in JSON,
// protobuf and as metadata. They live for seconds. Some end by their client, some by
// timeoutSeconds, and some hardly read.
//
// Most only count bytes. The others are strict: what they are told is held against the [History],
// which is read from etcd itself, so it does not matter what kube-apiserver or listproxy think.
// Nothing may be false, missing, told twice or out of order, in streams from memory and in
// forwarded ones.
package crowd

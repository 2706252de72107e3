// Package audit writes audit events for lists that are answered from memory, which kube-apiserver's
// own audit log does not see. A [Log] is asked before an answer ([Log.Begin]) and is given the
// event after it ([Entry.Complete]): while it cannot be written, nothing is answered from memory.
//
// # Why not k8s.io/apiserver's audit package and log backend
//
// Its log backend (plugin/pkg/audit/log) says only that an event could not be written, not how much
// of it was, so what a full disk has left of a line could not be told from a line; it also puts the
// whole event into the process's log then. Its LogRequestMetadata believes a client's
// X-Forwarded-For, which is removed here. What is left of it is one call of the JSON encoder. The
// types of an event are its own, and the tests compare each line, byte for byte, with what its
// backend writes.
package audit

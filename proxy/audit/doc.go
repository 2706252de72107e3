// Package audit writes audit events for lists and watches that are answered from memory, which
// kube-apiserver's own audit log does not see. A [Log] is asked before an answer ([Log.Begin]) and
// gets the event after it ([Entry.Complete]): while the log cannot be written, nothing is answered
// from memory.
//
// # Why not k8s.io/apiserver's audit package and log backend
//
// Its log backend (plugin/pkg/audit/log) says that an event could not be written, but not how many
// bytes of it were. So half a line on a full disk could not be distinguished from a whole one. It
// then also writes the whole event into the process's log. Its LogRequestMetadata believes a
// client's X-Forwarded-For, which is removed here. Apart from these two, only one call of the JSON
// encoder would be left to use. The types of an event are those of apiserver's audit package, and
// the tests compare each line, byte for byte, with what its backend writes.
package audit

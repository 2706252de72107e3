// Package audit writes audit events for lists and watches that are answered from memory, which
// kube-apiserver's own audit log does not see. [Log.Write] is called before an answer, when it is
// known what it will be: an answer whose event cannot be written is not given from memory.
//
// Events, lines and files are kube-apiserver's own: k8s.io/apiserver's log backend writes them, into a
// file that lumberjack rotates.
package audit

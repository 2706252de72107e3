// Package watches asks listproxy and kube-apiserver for the same watches while objects are created,
// changed and deleted, and compares what both send: status, headers, and each event byte for byte.
//
// # What a stream is compared with
//
// Two watches are never answered at the same moment, so their events are not compared with each
// other. Each is compared with a [track]: a state that kube-apiserver lists at an exact revision,
// and the events that it sends from there, with the same selectors and in the same representation.
// The initial events of a stream must be the state at one revision, in the order of keys; if a
// bookmark ends them, at the revision of that bookmark. After them, each event above that revision
// must come once and in order, up to what had been written when the comparison was made.
// kube-apiserver's own answer is checked in the same way; if it fails, this package demands
// something wrong ([Reference]).
//
// Bookmarks must have the same bytes as kube-apiserver's, except the revision. They come only if
// the request asks for them. Their revision is never below the one asked for, and never above that
// of a later event.
//
// An error in the stream (ERROR) must have the same bytes at both, except the revision that the API
// server has reached. An odd request ([form].odd) must be answered with the same status and
// headers, and the stream must end at both or at neither.
//
// # What must come from memory
//
// [form].memory says it: watches from a recent revision, and streaming lists of resourceVersion=0
// and of a revision, in JSON, protobuf and metadata, if lists with the same selectors are answered
// from memory.
package watches

// Package watches asks listproxy and kube-apiserver for the same watches while objects are created,
// changed and deleted, and compares what the two say: status, headers, and each event byte for
// byte.
//
// # What a stream is compared with
//
// Two watches are never answered at the same moment, so their events are not compared with each
// other. Each is held against a [track]: a state that kube-apiserver lists at an exact revision,
// and the events that it tells from there, with the same selectors and in the same representation.
// What a stream begins with must be the state at one revision, in the order of keys: at that of the
// bookmark that ends it, where there is one. What follows must be each event above that revision,
// once and in order, up to what had been written when it was looked at. kube-apiserver's own answer
// is judged in the same way; if it fails, then this package demands something wrong ([Reference]).
//
// Bookmarks must have the same bytes as kube-apiserver's, except the revision. They come only if
// asked for. Their revision is never below the one asked for, and never above that of an event that
// is told after them.
//
// What is refused in the stream (ERROR) must be refused by both with the same bytes, except the
// revision that the API server has reached. An odd request ([form].odd) must be answered with the
// same status and headers, and the stream must end at both or at neither. A Table is compared as
// the metadata of the object in its row, since its cells age.
//
// A follower ([Comparator.Follow]) goes away and resumes again and again. All that it has heard
// must be what one long watch says, and have every write in the ledger.
//
// # What is to come from memory
//
// [form].memory: watches from a recent revision, and streaming lists of resourceVersion=0 and of a
// revision, in JSON, protobuf and metadata, of what lists of the same selectors are answered for.
package watches

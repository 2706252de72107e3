// Package wire reads and writes what the upstream sends, in JSON and in protobuf: lists, the events of a watch, and the
// metadata, labels and selectable fields of an object. The bytes of an object are a part of what the upstream sent;
// they are never encoded again.
//
// encoding.go says what both encodings can do. jsonencoding.go (with jsonscan.go) and protobufencoding.go (with
// protobuffields.go) read, jsonshape.go and protobufshape.go write. event.go and bookmark.go have events and bookmarks,
// revise.go changes an object's revision, indent.go indents. What selectors match is in labels.go, selectablefields.go (which
// fields there are) and fieldpaths.go (where an object has their values).
//
// [Envelope] is everything in a list except its objects. It is learned from a real list, and accepted only if that list,
// written with the envelope, has the same bytes. Package wire refuses bytes that it does not completely understand. Callers
// report the error as [ErrForm]; in a watch it is an [InconsistencyError].
package wire

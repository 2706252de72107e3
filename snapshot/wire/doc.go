// Package wire reads and writes what the upstream sends, in JSON and in protobuf: lists, the events of a watch, and the
// metadata, labels and selectable fields of an object. The bytes of an object are a part of what the upstream sent;
// they are never encoded again.
//
//	file                                       content
//	encoding.go                                the interface of both encodings
//	jsonencoding.go, jsonscan.go               reading JSON
//	jsonshape.go                               writing JSON
//	protobufencoding.go, protobuffields.go     reading protobuf
//	protobufshape.go                           writing protobuf
//	envelope.go, event.go, bookmark.go         lists, events and bookmarks
//	revise.go, indent.go                       another revision in an object, indented JSON
//	labels.go, selectablefields.go             what selectors match
//	fieldpaths.go                              where an object has the values of selectable fields
//
// [Envelope] is everything in a list except its items. It is learned from a real list, and accepted only if it writes that list
// with the same bytes. Package wire refuses bytes that it does not completely understand: with [ErrForm] while it learns, with
// an [InconsistencyError] in a watch.
package wire

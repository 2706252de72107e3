// Package wire reads and writes what the upstream sends, in JSON and in protobuf: lists, the events
// of a watch, and the metadata, labels and selectable fields of an object. An object's bytes are
// cut out of what came and never encoded again.
//
// [Frame] is everything of a list that is not an object. It is learned from a real list, and
// accepted only if that list, written with the frame, has the same bytes. What wire does not know
// to the last byte it refuses: with [ErrForm], or, in the middle of a watch, with an
// [InconsistencyError].
package wire

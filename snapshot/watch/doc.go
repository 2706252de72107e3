// Package watch lets any number of clients follow the history of one collection.
//
// The history is the log. A [Hub] has the part of it that belongs to one live span, and a client is
// a [Cursor] into it: a revision up to which it was told everything, and a [index.Filter]. There
// are no queues and no copies of events. What a client that reads slowly costs is its cursor.
//
//	feed ──Publish──► Hub ──wakes the cursors of the buckets that a change touches──► Cursor.Take
//	                   └─ one goroutine and one timer, however many cursors
//
// Invariants, which the tests attack:
//
//   - A cursor is told every change after its beginning that its filter chooses, once, in the order
//     of revisions, and nothing else.
//   - A bookmark's revision is at or below what the hub knows, and all changes up to it that the
//     filter chooses were told before.
//   - A cursor never goes from one span to another. When the span is lost, all cursors of its hub
//     end, spread over some seconds.
//   - A cursor whose next change the history has forgotten ends. It is never told what comes after
//     a hole.
package watch

// Package watch lets any number of clients follow the history of one collection.
//
// The history is the log. A [Hub] has the part of the log that belongs to one live span. A client
// is a [Cursor] into the log: the revision up to which it has got everything, and an
// [index.Filter]. There are no queues and no copies of events, so a client that reads slowly costs
// no more than its cursor. The newest event is encoded once, for all who are told it (batch.go).
//
//	feed ──Publish──► Hub ──wakes the cursors of the buckets that a change touches──► Cursor.Take
//	                   └─ one goroutine and one timer, however many cursors
//
// Invariants, which the tests attack:
//
//   - A cursor gets every change after its beginning that its filter chooses, once, in the order of
//     revisions, and nothing else.
//   - A bookmark's revision is at most the newest that the hub knows, and the cursor has got all
//     changes up to that revision that its filter chooses.
//   - A cursor goes on in a span that begins anew only if it has been told all of the one before, and
//     both states are the same. When the state is lost, all cursors of its hub
//     end, spread over some seconds, with those of all hubs that have the same [Pacer].
//   - No change is told before [Options].Defined was true, asked after the change was there. One answer
//     is for all cursors. While it is not true, the hub asks again for all.
//   - If the history has forgotten the next change of a cursor, the cursor ends. It never skips a
//     change.
package watch

// Package watch lets any number of clients follow the history of one collection.
//
// The history is the log. A [Broadcaster] has the part of the log that belongs to one live span. Each client has
// a [Watcher], which knows the revision up to which the client has got everything, and its
// [index.Filter]. There are no queues and no copies of events, so a client that reads slowly costs
// no more than its watcher. The newest event is encoded once, for all who are told it (batch.go).
//
//	feed ──Publish──► Broadcaster ──wakes the watchers of the buckets that a change touches──► Watcher.Take
//	                   └─ one goroutine and one timer, however many watchers
//
// Invariants, which the tests attack:
//
//   - A watcher gets every change after its beginning that its filter chooses, once, in the order of
//     revisions, and nothing else.
//   - A bookmark's revision is at most the newest that the broadcaster knows, and the watcher has got all
//     changes up to that revision that its filter chooses.
//   - A watcher goes on in a span that begins anew only if it has been told all of the one before, and a watch
//     of the upstream has told all that led to the new one. When the state is lost, all watchers of its broadcaster
//     end, spread over some seconds, with those of all broadcasters that have the same [Pacer].
//   - No change is told before [Options].Defined was true, asked after the change was there. One answer
//     is for all watchers. While it is not true, the broadcaster asks again for all.
//   - If the history has forgotten the next change of a watcher, the watcher ends. It never skips a
//     change.
package watch

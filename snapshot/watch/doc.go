// Package watch lets any number of clients follow the history of one collection.
//
// The history is the log. A [Broadcaster] has the log of one [Span], the interval of revisions that is known. Each
// client has a [Watcher] with an [index.Filter], which knows the revision up to which the client was told everything.
// There are no queues and no copies of events, so a client that reads slowly costs no more than its watcher. The
// newest event is encoded once for all clients that are told it (batch.go).
//
//	feed ──Publish──► Broadcaster ──wakes the watchers of the buckets that a change touches──► Watcher.Take
//	                   └─ one goroutine, however many watchers
//
// Invariants, which the tests attack:
//
//   - A watcher is told every change after its beginning that its filter chooses, once, in the order of revisions, and
//     nothing else.
//   - A bookmark's revision is at most the newest that the broadcaster knows. The watcher was told all changes up to that
//     revision that its filter chooses.
//   - A watcher goes on in a span that begins anew only if it was told all of the span before, and a watch of the upstream
//     has told all changes that led to the new one. When the state is lost, all watchers of its broadcaster end. Their
//     ends are spread over some seconds, together with those of all broadcasters that have the same [Pacer].
//   - A change is told only after [Options].Defined has returned true since the change was published. The broadcaster asks
//     once for all watchers, and again until it is true.
//   - If the history has forgotten the next change of a watcher, the watcher ends. It never skips a
//     change.
package watch

// Package watch lets any number of clients follow the history of one collection.
//
// A [Broadcaster] has a [Span]: the history of the collection in the interval of revisions that is known. Each client has a
// [Watcher] with an [index.Filter]. The watcher knows the revision up to which the client has everything, and reads the next
// changes from the span. There are no queues and no copies of events, so a client that reads slowly costs no more than its
// watcher.
//
//	feed ──Publish──► Broadcaster ──wakes the watchers whose filters select a change──► Watcher.Take
//
// Watches end at different times, so that their clients do not all come back at once (ending.go).
//
// Invariants, which the tests attack:
//
//   - A watcher delivers every change after its beginning that its filter selects, once, in the order of revisions, and
//     nothing else.
//   - A bookmark's revision is at most the newest that the broadcaster knows. Up to that revision, the client has all
//     changes that its filter selects.
//   - When another state is loaded, and the old span has all changes that lead to it, [Broadcaster.Renew] replaces the span. A
//     watcher goes on only if it has delivered all of the old span. If changes are missing, all watchers end.
//   - When the state is lost, all watchers of its broadcaster end. Their ends are spread over some seconds, together with
//     those of all broadcasters that have the same [Pacer].
//   - A change is delivered only after [Options].IsDefined has returned true since the change was published. While it returns
//     false, each watcher with something to deliver calls it again.
//   - If the history has forgotten the next change of a watcher, the watcher ends. It never skips a change.
package watch

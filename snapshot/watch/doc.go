// Package watch lets any number of clients follow the history of one collection.
//
// A [Broadcaster] has the history of one [Span], the interval of revisions that is known. Each client has a [Watcher]
// with an [index.Filter]. The watcher knows the revision up to which the client has everything. There are no queues and
// no copies of events, so a client that reads slowly costs no more than its watcher. Watches end one by one (ending.go).
//
//	feed ──Publish──► Broadcaster ──wakes the watchers of the buckets that a change touches──► Watcher.Take
//
// Invariants, which the tests attack:
//
//   - A watcher delivers every change after its beginning that its filter selects, once, in the order of revisions, and
//     nothing else.
//   - A bookmark's revision is at most the newest that the broadcaster knows. Up to that revision, the client has all
//     changes that its filter selects.
//   - When the span is replaced ([Broadcaster.Renew]), a watcher goes on only if it has delivered all of the old span, and
//     if the old span has all changes that led to the new one.
//   - When the state is lost, all watchers of its broadcaster end. Their ends are spread over some seconds, together with
//     those of all broadcasters that have the same [Pacer].
//   - A change is delivered only after [Options].IsDefined has returned true since the change was published. While it returns
//     false, each watcher with something to deliver calls it again.
//   - If the history has forgotten the next change of a watcher, the watcher ends. It never skips a change.
package watch

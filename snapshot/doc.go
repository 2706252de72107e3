// Package snapshot holds what listproxy knows of the upstream, and how it knows it.
//
// A [Collection] is one resource in one representation. Its feed (one goroutine) reads the
// upstream's own bytes: it learns the envelope of a list, loads a complete state, follows a
// watch, and opens it again where it had come to. Every change makes a new immutable [View],
// published through one atomic pointer, so readers take no lock and never wait for the feed.
//
// # What is known
//
// One interval of revisions, in which the feed has missed nothing. Invariants, which the tests attack:
//
//   - It begins with one complete state at one revision, never with parts of two.
//   - Every change of the resource in it is in the history, in the order of revisions. The state at X
//     is the newest version at or before X.
//   - Its end advances only by an event or a bookmark of a stream that was opened at or before that
//     end, or by a short watch from there.
//   - A stream that ended or broke is opened again at the interval's end, after the upstream was asked
//     for its revision. After a break it must also tell the newest change again. If it does not, or has
//     forgotten what came since (410), a state is loaded beside the one that is known. Nothing from before
//     is known then. Until there is a stream, only those are answered who ask for any state.
//   - An event that cannot be decoded, comes out of order or does not fit the state (an object
//     added twice, an unknown one modified) drops everything.
//   - A revision below the highest one seen is a doubt. If the upstream gives such a revision once more a second
//     later, over another connection, its storage was replaced: everything is dropped. Revisions need not be
//     dense: one that is far above says nothing.
//   - The newest state (for Any and NotOlderThan) is given only while it is younger than a bound: the
//     feed has asked the upstream for its current revision, less than the bound ago, and the state has
//     reached that revision. No event and no bookmark alone makes it younger. History (for Exact and
//     continuations) stays true when the stream is silent.
//
// If a state is not known, a [reason.Reason] says why; the request is forwarded for that reason.
//
// # Files
//
//   - collections.go, janitor.go, invalidation.go: which collections there are, and for how long; stats.go
//   - collection.go, view.go, fresh.go, watches.go: what requests ask of a collection
//   - feed.go, learn.go, load.go, follow.go, probe.go, progress.go: the feed, in the order of its life
//   - write.go, trimhistory.go: the changes of what is known. Each is made under one lock, and publishes a view
//   - budget.go, lifecycle.go: the bytes that are used, and how often states are loaded and lost
//   - selfcheck.go, verify.go: comparisons with the upstream; checks.go remembers what they found
//
// # Watches
//
// A [watch.Broadcaster] has the clients that follow a collection. Each view that is published is given to the
// broadcaster. It ends with the state. It goes on over one that was loaded anew only if a watch from the known state's
// end has told all that led to the new one. How events and bookmarks are written is learned before a state is loaded
// (learn.go), and compared with each event that comes.
//
// # Bytes
//
// An object's bytes are stored once, in the form in which a list holds them, cut out of what
// the upstream sent and never encoded again. The [wire.Envelope] around them is learned from a real
// list, and accepted only if rendering that list with it gives the same bytes.
package snapshot

// Package snapshot holds what listproxy knows of the upstream, and how it knows it.
//
// A [Collection] is one resource in one representation. Its feed (one goroutine) reads the
// upstream's own bytes: it learns the frame of a list, loads a complete state, follows a
// watch, and resumes it in place when it breaks. Every change makes a new immutable [View],
// published through one atomic pointer, so readers take no lock and never wait for the feed.
//
// # What is known
//
// A span is an interval of revisions [from, to] over which the feed is known to be complete.
// Invariants, which the tests attack:
//
//   - A span is opened by one complete state at one revision, never by parts of two.
//   - Inside a span every change of the resource is in the history, in the order of revisions.
//     The state at X is the newest version at or before X.
//   - to advances only by what a stream that was started at or before to has delivered
//     (an event, a bookmark), or by a read at the upstream that says nothing happened.
//   - After a stream broke, the span goes on only if the upstream shows the same past
//     (samepast.go): it tells the newest change again, to the last byte; or it has the same names
//     and revisions, and the same newest object, at exactly the span's end. In the second case the
//     history before that goes, unless the API servers are the same ones. If it cannot, everything
//     is dropped.
//   - Losing the stream without resuming it closes the span for ever. Between two spans
//     nothing is known, and nothing is answered.
//   - An event that cannot be decoded, comes out of order or does not fit the state (an object
//     added twice, an unknown one modified) drops everything that the collection holds. Events at
//     or below the revision at which the state was loaded, about keys that it does not hold, are
//     passed over.
//   - A revision below the highest one seen means that the upstream's storage is another one:
//     everything is dropped.
//   - The newest state (for Any and NotOlderThan) is given only while the span is live and
//     younger than a bound: it holds all that the upstream had when it was asked, less than
//     the bound ago, how far it is. No event and no bookmark makes it newer, whenever they
//     come. History (for Exact and continuations) stays true when the upstream is silent.
//
// If a state is not known, a [reason.Reason] says why; the request is forwarded for that reason.
//
// # Watches
//
// Clients that follow a live span are in the [watch.Hub] that its views have; it is told of each
// view that is published, and ended when the span is. How events and bookmarks are written is
// learned before a state is loaded (learnwatch.go), and held against each event that comes.
//
// # Bytes
//
// An object's bytes are stored once, in the form in which a list holds them, cut out of what
// the upstream sent and never encoded again. The [wire.Frame] around them is learned from a real
// list, and accepted only if rendering that list with it gives the same bytes.
package snapshot

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
//   - "to" advances only by an event or a bookmark of a stream that was started at or before "to",
//     or by a read at the upstream which shows that nothing happened.
//   - After a stream broke, the span goes on only if the upstream shows the same past
//     (samepast.go): it sends the newest change again, with the same bytes; or it has the same
//     names and revisions, and the same newest object, at exactly the span's end. In the second
//     case the history before that is dropped, unless the API servers are still the same. If the
//     upstream cannot show the same past, everything is dropped. In the first case, the upstream may
//     still have other changes between that change and the span's end: until the stream, or a watch
//     beside it, has told that there are none, Fresh gives no state.
//   - Losing the stream without resuming it closes the span for ever. Between two spans
//     nothing is known, and nothing is answered.
//   - An event that cannot be decoded, comes out of order or does not fit the state (an object
//     added twice, an unknown one modified) drops everything that the collection holds. Events at
//     or below the revision at which the state was loaded, about keys that it does not hold, are
//     ignored.
//   - A revision below the highest one seen means that the upstream's storage was replaced:
//     everything is dropped.
//   - The newest state (for Any and NotOlderThan) is given only while the span is live and
//     younger than a bound: the feed has asked the upstream for its current revision, less than the
//     bound ago, and the state has reached that revision. No event and no bookmark alone makes it
//     younger. History (for Exact and continuations) stays true when the upstream is silent.
//
// If a state is not known, a [reason.Reason] says why; the request is forwarded for that reason.
//
// # Watches
//
// A live span has a [watch.Hub] with the clients that follow it. Each view that is published is
// given to the hub, and the hub ends with the span. How events and bookmarks are written is learned
// before a state is loaded (learnwatch.go), and compared with each event that comes.
//
// # Bytes
//
// An object's bytes are stored once, in the form in which a list holds them, cut out of what
// the upstream sent and never encoded again. The [wire.Frame] around them is learned from a real
// list, and accepted only if rendering that list with it gives the same bytes.
package snapshot

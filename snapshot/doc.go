// Package snapshot keeps the upstream's collections in memory, at each revision of the last minutes.
//
// A [Collection] is one resource in one representation. Its feed, one goroutine, reads the upstream's own bytes. It learns
// the envelope of a list, loads a complete state, and from there reads a watch, which it opens again whenever it ends. Every
// change makes a new immutable [View], published through one atomic pointer, so readers take no lock and never wait for the
// feed.
//
// # What is known
//
// A collection knows the states of one interval of revisions, in one timeline: a history of etcd, which ends when a backup is
// restored. Its invariants, which the tests attack:
//
//   - The interval begins with one complete state at one revision, never with parts of two.
//   - Every change in the interval is in the history, in the order of revisions. The state at a revision is the newest
//     version at or before that revision.
//   - The interval's end advances only by an event or a bookmark of a stream, or by a progress watch (a short watch up to a
//     bookmark). The stream or the watch was opened at or before that end, so no change is missed.
//   - A stream that ended or broke is opened again at the interval's end, after a probe for the upstream's revision. After a
//     break, there must be a proof that the timeline is the same: an API server still runs, or the upstream sends the newest
//     change again. Without a proof, or if the upstream has forgotten later changes (410), another state is loaded: the
//     interval begins anew there, and the known state stays until then. Without a stream, only requests for any state are
//     answered, except in an outage.
//   - Everything is dropped after an event that cannot be decoded, comes out of order or contradicts the state: for example,
//     it adds an object twice, or modifies an unknown one.
//   - A revision below the highest one seen raises a doubt. If a read a second later, over another connection, also gives a
//     lower revision, the storage was replaced, and everything is dropped. A revision far above proves nothing, since
//     revisions need not be dense.
//   - A probe asks the upstream for its revision. A list of any state, or of one not older than a revision, gets the newest
//     state only if this has reached the revision of a probe that was sent within the staleness bound. No event and no
//     bookmark alone makes the state newer.
//   - A list at an exact revision, or a later page of a list, may get a state of any age. States at their revisions stay true
//     even if nothing comes on the stream.
//
// If a state is not known, a [reason.Reason] says why, and the request is forwarded for that reason.
//
// # Files
//
//   - collections.go, janitor.go, invalidation.go: which collections there are, and for how long; stats.go: what is counted
//   - collection.go, view.go, snapshot.go, consistent.go, watches.go, waitorforward.go: what requests ask of a collection
//   - feed.go, learn.go, load.go, bridge.go, resume.go, timeline.go, reader.go, probe.go, progress.go, failure.go,
//     backoffs.go: the feed, in the order of its life
//   - statechange.go, write.go, trimhistory.go: the changes of the known states. Each change is made under
//     the collection's lock, and publishes a view
//   - budget.go: the bytes that are stored, and what is dropped if they become too many
//   - selfcheck.go, verifyafterchange.go: when a collection is compared with the upstream, regularly and after a change of
//     API servers
//   - comparepages.go: the comparison, page by page
//
// # Watches
//
// A [watch.Broadcaster] serves the watches of a collection from the views that are published. It ends when the state is lost.
// When a state is loaded anew, it goes on only if a progress watch has shown all changes
// that led to the loaded state. The form of events and bookmarks is learned before a state is loaded (learn.go), and compared
// with each event that comes.
//
// # Bytes
//
// An object's bytes are stored once, as a list has them. They are cut out of what the upstream sent, and never encoded again.
// The [wire.Envelope] around them is learned from a real list. It is accepted only if it reproduces that list byte for byte.
package snapshot

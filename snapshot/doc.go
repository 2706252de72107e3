// Package snapshot keeps the upstream's collections in memory, at each revision of the last minutes.
//
// A [Collection] is one resource in one representation. Its feed, one goroutine, reads the upstream's own bytes. It learns the
// envelope of a list, loads a complete state, and from there reads a watch: its stream. When the stream ends, the feed opens
// another. Every change makes a new immutable [View], published through one atomic pointer, so readers take no lock and never
// wait for the feed.
//
// # What is known
//
// A collection knows the states of one interval of revisions. All of them are of one timeline: a history of etcd, which ends
// when a backup is restored. To learn the upstream's current revision, the feed sends a probe: a list that is empty. The
// invariants of a collection, which the tests attack:
//
//   - The interval begins with one complete state at one revision, never with parts of two.
//   - Every change in the interval is in the history, in the order of revisions. The state at a revision is the newest
//     version at or before that revision.
//   - The interval's end advances only by an event or a bookmark of a stream, or by a progress watch (a short watch up to a
//     bookmark). The stream or the watch was opened at or before that end, so no change is missed.
//   - After a stream has ended or broken, the next one is opened at the interval's end, after a probe. After a break, there
//     must be a proof that the timeline is the same: an API server has run all the time, or the upstream sends the newest
//     change again. Without a proof, or if the upstream has forgotten later changes (410), another state is loaded. The known
//     states stay until the interval begins anew at the loaded state.
//   - While there is no stream, only a list that accepts any state (resourceVersion=0) is answered. In an outage, a request
//     that names a revision is answered, too.
//   - Everything is dropped after an event that cannot be decoded, comes out of order or contradicts the state: for example,
//     it adds an object twice, or modifies an unknown one.
//   - If a probe gives a revision below the highest one seen, the revision is read again a second later, over another
//     connection. If that one is lower, too, the storage was replaced, and everything is dropped. A revision far above the
//     highest one proves nothing, since revisions need not be dense.
//   - A list that accepts any state, or any state from a revision on, gets the newest state only if the state has reached the
//     revision of a probe that was sent within the staleness bound. No event and no bookmark alone makes the state newer.
//   - A list at an exact revision, or a later page of a list, may get a state of any age. The state at a revision stays true
//     even if nothing comes on the stream.
//
// If a state is not known, a [reason.Reason] says why, and the request is forwarded for that reason.
//
// # Files
//
//   - collections.go, janitor.go, invalidation.go: which collections there are, and for how long; stats.go: what is counted
//   - collection.go, view.go, snapshot.go, consistent.go, watches.go, waitorforward.go, largelists.go: what requests ask of a
//     collection
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
// When a state is loaded anew, it goes on only if a progress watch has seen all changes that led to the loaded state
// (bridge.go). The form of events and bookmarks is learned before a state is loaded (learn.go), and compared with each event
// that comes.
//
// # Bytes
//
// An object's bytes are stored once, as a list has them. They are cut out of what the upstream sent, and never encoded again.
// The [wire.Envelope] around them is learned from a real list. It is accepted only if it reproduces that list byte for byte.
package snapshot

package watch

import (
	"slices"

	"github.com/listproxy/listproxy/snapshot/index"
)

// Batch has events that are written to a client together. It has the newest event, which is encoded once for all clients; or a
// few small events, which are copied; or one event with a large object, whose bytes are shared with the history. So a client
// that does not read holds little memory of its own. The zero value is empty.
type Batch struct {
	// Events is the number of events.
	Events int
	// More reports whether the next Take returns more events, or an ending, without a Wait before it.
	More bool
	// encoded is the newest event, whose bytes all clients share. It is empty if the batch begins with another event.
	encoded []byte
	// copied has the bytes of the events after encoded, without the bytes in shared.
	copied []byte
	// shared has what is too large to be copied: the object as one part, or as two parts before and after its revision if the
	// revision must be replaced. Their offsets are in order.
	shared [2]part
}

// batchSize is about the number of bytes of events that a [Batch] copies.
const batchSize = 16 << 10

// part is a part of the bytes of an object in the history. The bytes are immutable. They stay in memory as long as a batch has
// them, even if the history has forgotten the object.
type part struct {
	bytes  []byte
	offset int // The bytes come before this index of Batch.copied.
}

// Reset makes the batch empty, and keeps the memory of copied for the next events.
func (b *Batch) Reset() { *b = Batch{copied: b.copied[:0]} }

// Size returns the number of bytes of all events together.
func (b *Batch) Size() int {
	return len(b.encoded) + len(b.copied) + len(b.shared[0].bytes) + len(b.shared[1].bytes)
}

// Parts yields the bytes of the events, in order.
func (b *Batch) Parts(yield func([]byte) bool) {
	if len(b.encoded) > 0 && !yield(b.encoded) {
		return
	}
	from := 0
	for _, p := range b.shared {
		if len(p.bytes) == 0 {
			continue
		}
		if p.offset > from && !yield(b.copied[from:p.offset]) {
			return
		}
		if !yield(p.bytes) {
			return
		}
		from = p.offset
	}
	if from < len(b.copied) {
		yield(b.copied[from:])
	}
}

// event is the event by which a client learns of the change at a revision.
type event struct {
	eventType string // This is wire.Added, wire.Modified or wire.Deleted.
	object    *index.Object
	revision  uint64
}

// encodedEvent is an event that was encoded once for many clients: those for which the change at the revision is an event of
// this type. It is immutable.
type encodedEvent struct {
	eventType string
	revision  uint64
	bytes     []byte
}

// addNewest adds the newest event to an empty batch. Many clients usually get that event at the same time. So if the event is
// small, the first client encodes it for all others. If the same change is an event of another type for a client, that client
// encodes its own.
func (b *Broadcaster) addNewest(batch *Batch, f *Form, e event) error {
	encoded := b.newestEncoded.Load()
	isCached := encoded != nil && encoded.revision == e.revision
	if isCached && encoded.eventType == e.eventType {
		batch.setEncoded(encoded)
		return nil
	}
	if _, err := batch.add(f, e); err != nil {
		return err
	}
	isCopied := batch.Size() == len(batch.copied) // nothing of the event is shared, so it is small
	// Two watchers may both encode the event: either result is right.
	if !isCached && isCopied {
		encoded = &encodedEvent{eventType: e.eventType, revision: e.revision, bytes: slices.Clone(batch.copied)}
		b.newestEncoded.Store(encoded)
		batch.setEncoded(encoded)
	}
	return nil
}

// setEncoded replaces the events of a batch by one encoded event.
func (b *Batch) setEncoded(e *encodedEvent) {
	b.Reset()
	b.encoded = e.bytes
	b.Events = 1
}

// add adds an event. It adds nothing, and returns false, if the batch has other events and this one does not fit. After an
// error the batch must be reset.
func (b *Batch) add(f *Form, e event) (added bool, err error) {
	if b.Events > 0 && b.Size()+len(e.object.Bytes) > batchSize {
		return false, nil
	}
	// The object is written as prefix + newRevision + suffix. The prefix is the whole object, unless its revision is replaced.
	prefix := e.object.Bytes
	var newRevision, suffix []byte
	if e.object.Revision != e.revision { // The object has left the selection: it is sent as it was before, but at e.revision.
		prefix, newRevision, suffix, err = f.Envelope.Encoding.Revise(e.object.Bytes, e.revision)
		if err != nil {
			return false, err
		}
	}
	var skip int // The head has the first skip bytes of the object already.
	b.copied, skip = f.Envelope.AppendEventHead(b.copied, e.eventType, len(prefix)+len(newRevision)+len(suffix))
	b.put(0, prefix[skip:])
	b.copied = append(b.copied, newRevision...)
	b.put(1, suffix)
	b.copied = append(b.copied, f.Envelope.EventEnd()...)
	b.Events++
	return true, nil
}

// put adds part 0 or 1 of an object. A small part is copied, and a large part becomes shared[i].
func (b *Batch) put(i int, content []byte) {
	if len(b.copied)+len(content) > batchSize {
		b.shared[i] = part{bytes: content, offset: len(b.copied)}
		return
	}
	b.copied = append(b.copied, content...)
}

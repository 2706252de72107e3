package watch

import (
	"slices"

	"github.com/listproxy/listproxy/snapshot/index"
)

// Batch has events that are written to a client together. A client that does not read holds little memory of its own: it
// shares the newest event with all clients, and the bytes of large objects with the history. The zero value is empty.
//
//	events            parts                        copied[flushed:]
//	small ones        none                         head, object, end, head, object, end
//	one large object  head (in copied) and object  end
//	the newest event  its encoded bytes            empty, or a bookmark
type Batch struct {
	// Events is the number of events.
	Events int
	// More reports whether the next Take returns more events, or an ending, without a Wait before it.
	More bool
	// The bytes of the events are those of parts, and then copied[flushed:]. The bytes of a part are immutable.
	parts   [][]byte
	copied  []byte
	flushed int
}

// batchSize is the number of bytes up to which a [Batch] copies objects. The few bytes around the objects may exceed it.
const batchSize = 16 << 10

// Reset makes the batch empty, and keeps its memory for the next events.
func (b *Batch) Reset() {
	clear(b.parts) // The history may free its objects.
	*b = Batch{parts: b.parts[:0], copied: b.copied[:0]}
}

// Size returns the number of bytes of all events together.
func (b *Batch) Size() int {
	size := 0
	for part := range b.Parts {
		size += len(part)
	}
	return size
}

// Parts yields the bytes of the events, in order.
func (b *Batch) Parts(yield func([]byte) bool) {
	for _, part := range b.parts {
		if !yield(part) {
			return
		}
	}
	if b.flushed < len(b.copied) {
		yield(b.copied[b.flushed:])
	}
}

// event is the event by which a client learns of the change at a revision.
type event struct {
	eventType string // This is wire.Added, wire.Modified or wire.Deleted.
	object    *index.Object
	revision  uint64
}

// add adds an event. It adds nothing and returns false if the batch has other events and this one does not fit. After an
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
	b.put(prefix[skip:])
	b.copied = append(b.copied, newRevision...)
	b.put(suffix)
	b.copied = append(b.copied, f.Envelope.EventEnd()...)
	b.Events++
	return true, nil
}

// put adds bytes of an object. It copies them if they fit into the batch, and shares them as a part if not.
func (b *Batch) put(content []byte) {
	isTooLarge := len(b.copied)+len(content) > batchSize
	if len(content) > 0 && isTooLarge {
		b.parts = append(b.parts, b.copied[b.flushed:], content)
		b.flushed = len(b.copied)
		return
	}
	b.copied = append(b.copied, content...)
}

// encodedEvent has the bytes of an event, for all clients that get the change at revision as an event of this type. It is
// immutable.
type encodedEvent struct {
	eventType string
	revision  uint64
	bytes     []byte
}

// addNewest adds the newest event to an empty batch. Usually many clients get it at the same time, so the first one encodes it
// for all, if it is small. One event is kept: a client that gets the change as an event of another type encodes its own.
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
	isSmall := len(batch.parts) == 0 // add has copied all of it.
	// Two watchers may both encode the event: either result is right.
	if !isCached && isSmall {
		encoded = &encodedEvent{eventType: e.eventType, revision: e.revision, bytes: slices.Clone(batch.copied)}
		b.newestEncoded.Store(encoded)
		batch.setEncoded(encoded)
	}
	return nil
}

// setEncoded replaces the events of a batch by one encoded event.
func (b *Batch) setEncoded(e *encodedEvent) {
	b.Reset()
	b.parts = append(b.parts, e.bytes)
	b.Events = 1
}

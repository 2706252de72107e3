package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Batch has events that are written to a client together. A batch that waits for a slow client takes little memory: it copies only
// small objects, and shares a large one with the history. The zero value is empty.
//
// The bytes of the batch are the parts, in order, and then the rest of copied, from the index tail on. An event is written as a
// head, the object and an end. (The head may have the object's first bytes, for example its opening brace.) For example:
//
//	events            parts                                  the rest of copied
//	two small ones    none                                   head, object, end, head, object, end
//	one large object  head (a slice of copied), the object   end
type Batch struct {
	// Events is the number of events.
	Events int
	// More reports whether the next Take returns more events, or an ending, without a Wait before it.
	More bool

	parts  [][]byte // They are immutable.
	copied []byte   // All bytes that were copied, also those of parts.
	tail   int      // The bytes of copied before this index are in parts.
}

// batchSize is the number of bytes up to which a [Batch] takes several events, and up to which it copies objects. A larger object
// comes alone and is not copied. The few bytes around the objects may exceed the bound.
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
	if b.tail < len(b.copied) {
		yield(b.copied[b.tail:])
	}
}

// event is the event by which a client learns of the change at a revision.
type event struct {
	eventType string // wire.Added, wire.Modified or wire.Deleted
	object    *index.Object
	revision  uint64 // The revision of the change. It is higher than the object's if the object has left the selection.
}

// add adds an event. It adds nothing and returns false if the batch has other events and this one does not fit.
func (b *Batch) add(f *Form, e event) (added bool) {
	if b.Events > 0 && b.Size()+len(e.object.Bytes) > batchSize {
		return false
	}
	// The object is written as prefix + newRevision + suffix. The prefix is the whole object, unless its revision is replaced.
	prefix := e.object.Bytes
	var newRevision, suffix []byte
	if e.object.Revision != e.revision { // The object has left the selection: its last state is sent, but at e.revision.
		prefix, newRevision, suffix = f.Envelope.Encoding.Revise(e.object.Bytes, e.revision)
	}
	var skip int // The head has the first skip bytes of the object already.
	b.copied, skip = f.Envelope.AppendEventHead(b.copied, e.eventType, len(prefix)+len(newRevision)+len(suffix))
	b.put(prefix[skip:])
	b.copied = append(b.copied, newRevision...)
	b.put(suffix)
	b.copied = append(b.copied, f.Envelope.EventEnd()...)
	b.Events++
	return true
}

// put adds bytes of an object. It copies them while the batch has at most batchSize copied bytes. Larger content becomes a part.
func (b *Batch) put(content []byte) {
	if len(content) == 0 || len(b.copied)+len(content) <= batchSize {
		b.copied = append(b.copied, content...)
		return
	}
	b.parts = append(b.parts, b.copied[b.tail:], content) // The rest of copied comes first, so it becomes a part, too.
	b.tail = len(b.copied)
}

package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Batch has events that are written to a client together. The zero value is empty.
//
// A batch that waits for a slow client takes little memory, since it copies only small objects. A large object stays in the
// history, and the batch points to its bytes.
//
// An event is written as a head, the object and an end. (The head may have the object's first bytes, for example its opening
// brace.) The bytes of the batch are all parts, in order, and then copied[tail:]. For example:
//
//	events            parts                                  copied[tail:]
//	two small ones    none                                   head, object, end, head, object, end
//	one large object  head (a slice of copied), the object   end
type Batch struct {
	// Events is the number of events.
	Events int
	// More reports whether the next Take has events or an ending to return at once, so that no Wait is needed before it.
	More bool

	parts  [][]byte // Their bytes never change.
	copied []byte   // All bytes that were copied. Some parts are slices of it.
	tail   int      // The parts have copied[:tail] already.
}

// batchSize is the number of bytes up to which a [Batch] takes several events, and up to which it copies objects. For example,
// ten pods of 1 KiB come in one batch and are copied. A pod of 20 KiB comes alone and is not copied. The few bytes around the
// objects may exceed the bound.
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
	// The object is written as prefix + newRevision + suffix. Usually the prefix is the whole object. But if the object has
	// left the selection, a DELETED event has its state before the change with the revision of the change. So Revise splits the
	// object around its revision.
	prefix := e.object.Bytes
	var newRevision, suffix []byte
	if e.object.Revision != e.revision {
		prefix, newRevision, suffix = f.Envelope.Encoding.Revise(e.object.Bytes, e.revision)
	}
	var skip int // The number of the object's first bytes that the head has already.
	b.copied, skip = f.Envelope.AppendEventHead(b.copied, e.eventType, len(prefix)+len(newRevision)+len(suffix))
	b.put(prefix[skip:])
	b.copied = append(b.copied, newRevision...)
	b.put(suffix)
	b.copied = append(b.copied, f.Envelope.EventEnd()...)
	b.Events++
	return true
}

// put adds bytes of an object. It copies them if the batch then has at most batchSize (16 KiB) copied bytes. If not, the bytes
// become a part.
func (b *Batch) put(content []byte) {
	if len(content) == 0 || len(b.copied)+len(content) <= batchSize {
		b.copied = append(b.copied, content...)
		return
	}
	b.parts = append(b.parts, b.copied[b.tail:], content) // What was copied since the last part comes before content.
	b.tail = len(b.copied)
}

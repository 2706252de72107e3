package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Batch has events that a client gets at once: a few small ones, which are copied; or one with a large object, whose bytes
// are shared; or the newest event, which is encoded once for all clients. So a client that does not read holds little
// memory of its own. The zero value is empty.
type Batch struct {
	// Events is the number of events.
	Events int
	// More reports whether the next Take returns more events, or an ending, without a Wait before it.
	More bool
	// newest is the encoded newest event, which all clients share; empty if the batch has other events.
	newest []byte
	// copied has the bytes of the other events, without those in shared.
	copied []byte
	// shared are the two parts of a large object: those before and after its revision, which may be written anew.
	shared [2]part
}

const (
	// batchSize is about the number of bytes of events that a [Batch] copies.
	batchSize = 16 << 10
	// headSize is about the number of bytes that an event has in addition to its object.
	headSize = 256
)

// part is a part of an object's own bytes. They are immutable, and stay in memory as long as a batch has them, even if
// the history has forgotten the object.
type part struct {
	bytes  []byte
	offset int // the index in Batch.copied before which the bytes belong
}

// Reset makes the batch empty, and keeps the memory of what was copied.
func (b *Batch) Reset() { *b = Batch{copied: b.copied[:0]} }

// Size returns the number of bytes of all events together.
func (b *Batch) Size() int {
	return len(b.newest) + len(b.copied) + len(b.shared[0].bytes) + len(b.shared[1].bytes)
}

// Parts yields the bytes of the events, in order.
func (b *Batch) Parts(yield func([]byte) bool) {
	if len(b.newest) > 0 && !yield(b.newest) {
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

// encodedEvent is the event for the change at a revision, encoded once for all clients to which that change is of the
// same kind. It is immutable.
type encodedEvent struct {
	kind     string // wire.Added, wire.Modified or wire.Deleted
	revision uint64
	bytes    []byte
}

// addNewest adds the newest event to an empty batch. Many clients usually get that event at the same time, so the first
// one encodes it for all others, if it is small. A client for which the same change is of another kind encodes its own.
func (b *Broadcaster) addNewest(batch *Batch, f *Form, kind string, o *index.Object, revision uint64) error {
	event := b.newest.Load()
	if event == nil || event.revision != revision {
		var err error
		if event, err = b.encodeNewest(f, kind, o, revision); err != nil {
			return err
		}
	}
	if event != nil && event.kind == kind {
		batch.newest, batch.Events = event.bytes, 1
		return nil
	}
	_, err := batch.add(f, kind, o, revision)
	return err
}

// encodeNewest encodes the newest event and keeps it for other clients. It returns nil if the event is large.
func (b *Broadcaster) encodeNewest(f *Form, kind string, o *index.Object, revision uint64) (*encodedEvent, error) {
	if len(o.Bytes) >= batchSize {
		return nil, nil
	}
	alone := Batch{copied: make([]byte, 0, len(o.Bytes)+headSize)}
	if _, err := alone.add(f, kind, o, revision); err != nil {
		return nil, err
	}
	if len(alone.copied) < alone.Size() { // a part of it would be shared
		return nil, nil
	}
	event := &encodedEvent{kind: kind, revision: revision, bytes: alone.copied}
	b.newest.Store(event)
	return event, nil
}

// add adds an event about an object at a revision. It adds nothing if the batch has other events and this one does not fit.
// After an error the batch must not be used.
func (b *Batch) add(f *Form, kind string, o *index.Object, revision uint64) (added bool, err error) {
	if b.Events > 0 && b.Size()+len(o.Bytes) > batchSize {
		return false, nil
	}
	before := o.Bytes
	var instead, after []byte
	if o.Revision != revision { // the object has left the selection, and is sent as it was before, but at this revision
		before, instead, after, err = f.Envelope.Encoding.Revise(o.Bytes, revision)
		if err != nil {
			return false, err
		}
	}
	// The head stands for the first bytes of the object, too, which are skipped.
	var skip int
	b.copied, skip = f.Envelope.AppendEventHead(b.copied, kind, len(before)+len(instead)+len(after))
	b.put(0, before[skip:])
	b.copied = append(b.copied, instead...)
	b.put(1, after)
	b.copied = append(b.copied, f.Envelope.EventEnd()...)
	b.Events++
	return true, nil
}

// put adds part i of an object, 0 or 1: a small part is copied, a large one is shared.
func (b *Batch) put(i int, content []byte) {
	if len(b.copied)+len(content) > batchSize {
		b.shared[i] = part{bytes: content, offset: len(b.copied)}
		return
	}
	b.copied = append(b.copied, content...)
}

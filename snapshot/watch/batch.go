package watch

import "github.com/listproxy/listproxy/snapshot/index"

// Batch has events that a client is told at once: a few small ones, which are copied; or one with a large object, which
// is shared; or the newest event, which is encoded once for all clients. So a client that does not read holds little
// memory of its own. The zero value is empty.
type Batch struct {
	// Events is the number of events.
	Events int
	// More reports whether there is more to take at once, or an ending.
	More bool
	// newest is the encoded newest event, which all clients share; empty if the batch has other events.
	newest []byte
	copied []byte
	// shared are the two parts of a large object: those before and after the bytes that are written anew in it.
	shared [2]part
}

const (
	// batchSize is the number of bytes of events that a [Batch] copies, about.
	batchSize = 16 << 10
	// headSize is the number of bytes that an event has in addition to its object, about.
	headSize = 256
)

// part is a part of an object's own bytes. They are immutable, and stay in memory as long as a batch has them, even if
// the history has forgotten the object.
type part struct {
	bytes []byte
	at    int // the index in Batch.copied before which the bytes belong
}

// Reset makes the batch empty, and keeps the memory of what was copied.
func (b *Batch) Reset() { *b = Batch{copied: b.copied[:0]} }

// Size returns the number of bytes of all events.
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
		if p.at > from && !yield(b.copied[from:p.at]) || !yield(p.bytes) {
			return
		}
		from = p.at
	}
	if from < len(b.copied) {
		yield(b.copied[from:])
	}
}

// encodedEvent is an event as it is sent, encoded once for all clients that get it.
type encodedEvent struct {
	kind     string
	object   *index.Object
	revision uint64
	bytes    []byte
	next     *encodedEvent // another event for the same change: clients with other filters get it
}

// addNewest adds the newest event to an empty batch. The first client that is told a small event encodes it for all
// others, since many are usually told it at the same time.
func (b *Broadcaster) addNewest(batch *Batch, f *Form, kind string, o *index.Object, revision uint64) error {
	newest := b.newest.Load()
	event := newest
	if event != nil && event.revision != revision {
		event = nil
	}
	sameChange := event
	for event != nil && (event.object != o || event.kind != kind) {
		event = event.next
	}
	if event == nil {
		var alone Batch
		if len(o.Bytes) < batchSize {
			alone.copied = make([]byte, 0, len(o.Bytes)+headSize)
			if _, err := alone.add(f, kind, o, revision); err != nil {
				return err
			}
		}
		if alone.Events == 0 || len(alone.copied) < alone.Size() { // it is large
			_, err := batch.add(f, kind, o, revision)
			return err
		}
		event = &encodedEvent{kind: kind, object: o, revision: revision, bytes: alone.copied, next: sameChange}
		b.newest.CompareAndSwap(newest, event) // else another client was first, or there is a newer event
	}
	batch.newest, batch.Events = event.bytes, 1
	return nil
}

// add adds an event about an object at a revision. It adds nothing if the batch has others and this one does not fit.
func (b *Batch) add(f *Form, kind string, o *index.Object, revision uint64) (added bool, err error) {
	if b.Events > 0 && b.Size()+len(o.Bytes) > batchSize {
		return false, nil
	}
	before := o.Bytes
	var instead, after []byte
	if o.Revision != revision { // the object has left the selection, and is sent as it was before
		before, instead, after, err = f.Envelope.Encoding.Revise(o.Bytes, revision)
		if err != nil {
			return false, err
		}
	}
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
		b.shared[i] = part{bytes: content, at: len(b.copied)}
		return
	}
	b.copied = append(b.copied, content...)
}

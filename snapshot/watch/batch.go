package watch

import "github.com/listproxy/listproxy/snapshot/index"

const (
	// batchSize is how many bytes of events a [Batch] copies, about.
	batchSize = 16 << 10
	// headSize is about how many bytes an event has beside its object.
	headSize = 256
)

// Batch is some events that are told at once: a few small ones, which are copied, or one whose
// object is large, which is not; or the newest event, which is written once for all clients. So a
// client that does not read holds little memory of its own. The zero value is empty.
type Batch struct {
	// Events is how many there are.
	Events int
	// More reports whether there is more to take at once, or an ending.
	More bool
	// newest is the newest event, if it is the first one here: bytes that all clients share.
	newest []byte
	copied []byte
	// shared are the parts of the large object: its bytes before and after what is written anew in it.
	shared [2]part
}

// part is some of an object's own bytes. They are immutable, and stay in memory as long as a batch
// has them, though the history may have forgotten the object.
type part struct {
	bytes []byte
	place int // in Batch.copied: the bytes come before it
}

// Reset makes the batch empty, and keeps the memory of what was copied.
func (b *Batch) Reset() { *b = Batch{copied: b.copied[:0]} }

// Size is the number of bytes that the events have.
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
		if p.place > from && !yield(b.copied[from:p.place]) || !yield(p.bytes) {
			return
		}
		from = p.place
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

// addNewest adds the newest event to an empty batch. The first client that is told it encodes it, if it is
// small, for all others; usually many are told at the same time.
func (b *Broadcaster) addNewest(batch *Batch, f *Form, kind string, o *index.Object, revision uint64) error {
	newest := b.newest.Load()
	event := newest
	if event != nil && event.revision != revision {
		event = nil
	}
	ofChange := event
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
		event = &encodedEvent{kind: kind, object: o, revision: revision, bytes: alone.copied, next: ofChange}
		b.newest.CompareAndSwap(newest, event) // else another client was first, or there is a newer event
	}
	batch.newest, batch.Events = event.bytes, 1
	return nil
}

// add adds an event about an object at a revision, unless there are others and it does not fit beside them.
func (b *Batch) add(f *Form, kind string, o *index.Object, revision uint64) (added bool, err error) {
	if b.Events > 0 && b.Size()+len(o.Bytes) > batchSize {
		return false, nil
	}
	before, instead, after := o.Bytes, []byte(nil), []byte(nil)
	if o.Revision != revision { // it has left the selection
		if before, instead, after, err = f.Envelope.Encoding.Revise(o.Bytes, revision); err != nil {
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

// put adds one of an object's two parts: a small one is copied, a large one is shared.
func (b *Batch) put(i int, bytes []byte) {
	if len(b.copied)+len(bytes) > batchSize {
		b.shared[i] = part{bytes, len(b.copied)}
		return
	}
	b.copied = append(b.copied, bytes...)
}

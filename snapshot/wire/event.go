package wire

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// The types of watch events.
const (
	Added      = "ADDED"
	Modified   = "MODIFIED"
	Deleted    = "DELETED"
	Bookmarked = "BOOKMARK"
	errorType  = "ERROR" // The object is a Status, and the watch ends.
)

// Event is one event of a watch.
type Event struct {
	Type   string // Added, Modified, Deleted or Bookmarked
	Meta   ObjectMeta
	Object []byte // as received
	// ReadAt is the time at which the event was read.
	ReadAt time.Time
	// Reproducible reports whether [Envelope.AppendEvent] would write this event with the same bytes.
	Reproducible bool
}

// ParseEvent parses a record of [Encoding.ReadRecord]. The event does not use the record's memory. The error is an
// [AnswerError] for an ERROR event, and an [InconsistencyError] for a record that is no event.
func ParseEvent(encoding Encoding, record []byte) (Event, error) {
	ev, err := encoding.parseEvent(record)
	if err != nil {
		return Event{}, Inconsistent("an event cannot be decoded: %v", err)
	}
	switch ev.Type {
	case Added, Modified, Deleted, Bookmarked:
	case errorType:
		return Event{}, eventError(ev.Object)
	default:
		return Event{}, Inconsistent("an event of type %q", ev.Type)
	}
	if ev.Meta.Revision == 0 {
		return Event{}, Inconsistent("an event without resourceVersion")
	}
	ev.Object = bytes.Clone(ev.Object)
	return ev, nil
}

// AppendEvent appends an event of a watch as the upstream writes it. item is the object as a list holds it. Envelope.Item
// must be known.
func (e *Envelope) AppendEvent(dst []byte, eventType string, item []byte) []byte {
	dst, skip := e.AppendEventHead(dst, eventType, len(item))
	dst = append(dst, item[skip:]...)
	return append(dst, e.EventEnd()...)
}

// AppendEventHead appends the bytes before an item of size bytes in an event. These include the first skip bytes of the item
// itself, which the caller must then leave out. With [Envelope.EventEnd], a caller can write an event without copying the
// item.
func (e *Envelope) AppendEventHead(dst []byte, eventType string, size int) (out []byte, skip int) {
	return e.Encoding.appendEventHead(dst, eventType, e.Item, size)
}

// EventEnd returns the bytes after the item in an event.
func (e *Envelope) EventEnd() string { return e.Encoding.eventEnd() }

// ReviseItem returns a copy of a list's item with another resourceVersion.
func ReviseItem(encoding Encoding, item []byte, revision uint64) ([]byte, error) {
	before, revised, after, err := encoding.Revise(item, revision)
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, revised, after), nil
}

// Bookmark writes the bookmarks of one collection as the upstream does: each has an object with only the collection's
// type and a revision. The bookmark that ends the initial events also has an annotation. A Bookmark is immutable.
type Bookmark struct {
	envelope Envelope // Only the encoding and the form of the object are set.
	item     []byte   // The object of the learned bookmark, as a list would hold it.
}

// LearnBookmark returns a Bookmark that writes bookmarks like one that the upstream has sent. It returns an error if the
// sent bookmark cannot be written again with the same bytes.
func LearnBookmark(encoding Encoding, sent Event) (*Bookmark, error) {
	if sent.Type != Bookmarked || !sent.Reproducible {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	form := ItemForm{APIVersion: sent.Meta.APIVersion, Kind: sent.Meta.Kind}
	item, err := encoding.ItemOf(form, bytes.Clone(sent.Object))
	if err != nil {
		return nil, err
	}
	again, err := ReviseItem(encoding, item, sent.Meta.Revision)
	if err != nil || !bytes.Equal(again, item) {
		return nil, fmt.Errorf("%w: the revision of a bookmark cannot be changed", ErrForm)
	}
	return &Bookmark{envelope: Envelope{Encoding: encoding, Item: form}, item: item}, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	item, err := ReviseItem(b.envelope.Encoding, b.item, revision)
	if err != nil {
		return dst // This cannot happen: LearnBookmark has revised the same item.
	}
	return b.envelope.AppendEvent(dst, Bookmarked, item)
}

package wire

import (
	"bytes"
	"fmt"
	"slices"
)

// The types of watch events.
const (
	Added      = "ADDED"
	Modified   = "MODIFIED"
	Deleted    = "DELETED"
	Bookmarked = "BOOKMARK"
)

// AppendEvent appends an event of a watch as the upstream writes it. item is the object as a list holds it. Envelope.Item
// must be known.
func (e *Envelope) AppendEvent(dst []byte, eventType string, item []byte) []byte {
	return appendEvent(dst, e.Encoding, eventType, e.Item, item)
}

// appendEvent is AppendEvent for an encoding and a form of items.
func appendEvent(dst []byte, encoding Encoding, eventType string, form ItemForm, item []byte) []byte {
	dst, skip := encoding.appendEventHead(dst, eventType, form, len(item))
	dst = append(dst, item[skip:]...)
	return append(dst, encoding.eventEnd()...)
}

// AppendEventHead appends the bytes before an item of size bytes in an event. The first skip bytes of the item must be
// left out of the event. With [Envelope.EventEnd], a caller can write an event without copying the item.
func (e *Envelope) AppendEventHead(dst []byte, eventType string, size int) (out []byte, skip int) {
	return e.Encoding.appendEventHead(dst, eventType, e.Item, size)
}

// EventEnd returns the bytes after the item in an event.
func (e *Envelope) EventEnd() string { return e.Encoding.eventEnd() }

// AtRevision returns a copy of a list's item with another resourceVersion.
func AtRevision(encoding Encoding, item []byte, revision uint64) ([]byte, error) {
	before, revised, after, err := encoding.Revise(item, revision)
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, revised, after), nil
}

// Bookmark writes the bookmarks of one collection as the upstream does: each has an object with only the collection's
// type and a revision. The bookmark that ends the initial events also has an annotation. A Bookmark is immutable.
type Bookmark struct {
	encoding Encoding
	form     ItemForm
	item     []byte // the object of the learned bookmark, as a list would hold it
}

// LearnBookmark returns a Bookmark that writes bookmarks like one that the upstream has sent. It returns an error if the
// sent bookmark cannot be written again with the same bytes.
func LearnBookmark(encoding Encoding, sent Event) (*Bookmark, error) {
	b := &Bookmark{encoding: encoding, form: ItemForm{APIVersion: sent.Meta.APIVersion, Kind: sent.Meta.Kind}}
	var err error
	if b.item, err = encoding.Cut(b.form, bytes.Clone(sent.Object)); err != nil {
		return nil, err
	}
	again, err := AtRevision(encoding, b.item, sent.Meta.Revision)
	if err != nil || !bytes.Equal(again, b.item) || !sent.Reproducible || sent.Type != Bookmarked {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	return b, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	item, err := AtRevision(b.encoding, b.item, revision)
	if err != nil {
		return dst // cannot happen: LearnBookmark has revised the same item
	}
	return appendEvent(dst, b.encoding, Bookmarked, b.form, item)
}

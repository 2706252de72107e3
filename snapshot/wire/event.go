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

// AppendEvent appends an event of a watch as the upstream writes it. item is the object as a list holds it;
// Envelope.Item must be known.
func (e *Envelope) AppendEvent(dst []byte, kind string, item []byte) []byte {
	return appendEvent(dst, e.Encoding, kind, e.Item, item)
}

// appendEvent is AppendEvent for an encoding and a form of items.
func appendEvent(dst []byte, e Encoding, kind string, form ItemForm, item []byte) []byte {
	dst, skip := e.appendEventHead(dst, kind, form, len(item))
	return append(append(dst, item[skip:]...), e.eventEnd()...)
}

// AppendEventHead appends the bytes before the item in an event. The item has size bytes; its first skip bytes are
// not sent. Together with [Envelope.EventEnd] it lets a caller write an event without copying the item.
func (e *Envelope) AppendEventHead(dst []byte, kind string, size int) (out []byte, skip int) {
	return e.Encoding.appendEventHead(dst, kind, e.Item, size)
}

// EventEnd returns the bytes after the item in an event.
func (e *Envelope) EventEnd() string { return e.Encoding.eventEnd() }

// AtRevision returns a copy of a list's item with another resourceVersion.
func AtRevision(e Encoding, item []byte, revision uint64) ([]byte, error) {
	before, instead, after, err := e.Revise(item, revision)
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, instead, after), nil
}

// Bookmark writes the bookmarks of one collection as the upstream does: each carries an object that has nothing but the
// collection's type and a revision. The bookmark that ends the initial events has an annotation, too. It is immutable.
type Bookmark struct {
	encoding Encoding
	form     ItemForm
	item     []byte // the object of the bookmark that was learned
}

// LearnBookmark returns the Bookmark that writes bookmarks like one that the upstream has sent. It returns an error
// if that one could not be written again with the same bytes.
func LearnBookmark(e Encoding, ev Event) (*Bookmark, error) {
	b := &Bookmark{encoding: e, form: ItemForm{APIVersion: ev.Meta.APIVersion, Kind: ev.Meta.Kind}}
	var err error
	if b.item, err = e.Cut(b.form, bytes.Clone(ev.Object)); err != nil {
		return nil, err
	}
	again, err := AtRevision(e, b.item, ev.Meta.Revision)
	if err != nil || !bytes.Equal(again, b.item) || !ev.Reproducible || ev.Kind != Bookmarked {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	return b, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	item, err := AtRevision(b.encoding, b.item, revision)
	if err != nil {
		return dst // cannot happen: LearnBookmark has done the same
	}
	return appendEvent(dst, b.encoding, Bookmarked, b.form, item)
}

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

// AppendEvent appends an event of a watch as the upstream writes it, with the list form of an
// object whose form in events was learned.
func (f *Envelope) AppendEvent(dst []byte, kind string, item []byte) []byte {
	return appendEvent(dst, f.Encoding, kind, f.Item, item)
}

func appendEvent(dst []byte, e Encoding, kind string, form ItemForm, item []byte) []byte {
	dst, skip := e.appendEventHead(dst, kind, form, len(item))
	return append(append(dst, item[skip:]...), e.eventEnd()...)
}

// AppendEventHead and [Envelope.EventEnd] are AppendEvent for an item that is not copied. AppendEventHead appends
// what comes in an event before an item of that size, whose first skip bytes are left out.
func (f *Envelope) AppendEventHead(dst []byte, kind string, size int) (out []byte, skip int) {
	return f.Encoding.appendEventHead(dst, kind, f.Item, size)
}

// EventEnd is what comes after the item in an event.
func (f *Envelope) EventEnd() string { return f.Encoding.eventEnd() }

// AtRevision returns a list's item with another resourceVersion, in memory of its own.
func AtRevision(e Encoding, item []byte, revision uint64) ([]byte, error) {
	before, instead, after, err := e.Revise(item, revision)
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, instead, after), nil
}

// Bookmark is how the upstream writes a bookmark of one collection: the zero value of the type at a
// revision, and in the bookmark that ends the initial events an annotation. It is immutable.
type Bookmark struct {
	encoding Encoding
	form     ItemForm
	item     []byte
}

// LearnBookmark learns the form of a bookmark from one that the upstream has sent. It returns an
// error if the bookmark could not be written again with the same bytes.
func LearnBookmark(e Encoding, ev Event) (*Bookmark, error) {
	b := &Bookmark{encoding: e, form: ItemForm{APIVersion: ev.Meta.APIVersion, Kind: ev.Meta.Kind}}
	var err error
	if b.item, err = e.Cut(b.form, bytes.Clone(ev.Object)); err != nil {
		return nil, err
	}
	again, err := AtRevision(e, b.item, ev.Meta.Revision)
	if err != nil || !bytes.Equal(again, b.item) || !ev.Framed || ev.Kind != Bookmarked {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	return b, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	item, err := AtRevision(b.encoding, b.item, revision)
	if err != nil {
		return dst // it was possible when the form was learned
	}
	return appendEvent(dst, b.encoding, Bookmarked, b.form, item)
}

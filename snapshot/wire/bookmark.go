package wire

import (
	"bytes"
	"fmt"
)

// Bookmark writes the bookmarks of one collection as the upstream does: each has an object with only the collection's
// type and a revision. The bookmark that ends the initial events also has an annotation. A Bookmark is immutable.
type Bookmark struct {
	envelope Envelope // It has only Encoding and Item.
	item     []byte   // This is the object of the learned bookmark, in protobuf without its wrapper.
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
	// Try now what AppendTo will do.
	if again := ReviseItem(encoding, item, sent.Meta.Revision); !bytes.Equal(again, item) {
		return nil, fmt.Errorf("%w: the revision of a bookmark cannot be changed", ErrForm)
	}
	return &Bookmark{envelope: Envelope{Encoding: encoding, Item: form}, item: item}, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	return b.envelope.AppendEvent(dst, Bookmarked, ReviseItem(b.envelope.Encoding, b.item, revision))
}

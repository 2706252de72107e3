package wire

import (
	"bytes"
	"fmt"
)

// Bookmark writes the bookmarks of one collection as the upstream does. The object of a bookmark has only a type and a
// revision, and an annotation if the bookmark ends the initial events. A Bookmark is immutable.
type Bookmark struct {
	envelope Envelope // It has only Encoding and ItemForm.
	item     []byte   // The object of the learned bookmark, as an item.
}

// LearnBookmark returns a Bookmark that writes bookmarks like sent, which is from the upstream. It returns an error if no
// Bookmark writes sent with the same bytes.
func LearnBookmark(encoding Encoding, sent Event) (*Bookmark, error) {
	if sent.Type != Bookmarked || !sent.Reproducible {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	form := ItemForm{APIVersion: sent.Meta.APIVersion, Kind: sent.Meta.Kind}
	item, err := encoding.ItemOf(form, bytes.Clone(sent.Object))
	if err != nil {
		return nil, err
	}
	// AppendTo sets the revision with ReviseItem. With the revision that the item has already, this must change no byte.
	if again := ReviseItem(encoding, item, sent.Meta.Revision); !bytes.Equal(again, item) {
		return nil, fmt.Errorf("%w: the revision of a bookmark cannot be changed", ErrForm)
	}
	return &Bookmark{envelope: Envelope{Encoding: encoding, ItemForm: form}, item: item}, nil
}

// AppendTo appends the event of a bookmark at a revision.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	return b.envelope.AppendEvent(dst, Bookmarked, ReviseItem(b.envelope.Encoding, b.item, revision))
}

package watch

import "github.com/listproxy/listproxy/snapshot/wire"

// Form says how the upstream writes the events of a collection, so that listproxy can write the same bytes. A Form is never
// changed, only replaced (updateForm).
//
// A load learns the form. Two parts may still be unknown then: PlainBookmark is learned from the first bookmark of a watch, and
// Envelope.ItemForm from the first object.
type Form struct {
	Envelope *wire.Envelope
	// ContentType is the content type of the upstream's watches.
	ContentType string
	// Compressed reports whether the upstream compresses a streaming list for a client that accepts gzip and wants bookmarks.
	Compressed bool
	// InitialEndBookmark is the bookmark that ends the initial events; nil if listproxy cannot write the upstream's.
	InitialEndBookmark *wire.Bookmark
	// PlainBookmark is a bookmark that does not end the initial events; nil before the first.
	PlainBookmark *wire.Bookmark
}

// Form returns the form in which the broadcaster's watchers write events.
func (b *Broadcaster) Form() *Form { return b.form.Load() }

// SetPlainBookmark sets the form's PlainBookmark.
func (b *Broadcaster) SetPlainBookmark(bookmark *wire.Bookmark) {
	b.updateForm(func(f *Form) { f.PlainBookmark = bookmark })
}

// SetEnvelope replaces an envelope whose ItemForm is unknown. It must be called before the first object is published, since
// the object's event is written with ItemForm.
func (b *Broadcaster) SetEnvelope(envelope *wire.Envelope) {
	b.updateForm(func(f *Form) { f.Envelope = envelope })
}

// updateForm changes a copy of the form and stores it.
func (b *Broadcaster) updateForm(edit func(*Form)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	form := *b.form.Load()
	edit(&form)
	b.form.Store(&form)
}

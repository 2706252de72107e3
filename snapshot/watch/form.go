package watch

import "github.com/listproxy/listproxy/snapshot/wire"

// Form says how the upstream writes the events of a collection. It is immutable.
type Form struct {
	Envelope *wire.Envelope
	// ContentType is the content type of the upstream's watches.
	ContentType string
	// Compressed reports whether the upstream compresses a streaming list with bookmarks for a client that accepts gzip.
	Compressed bool
	// InitialEndBookmark is the bookmark that ends the initial events; nil if the upstream has none, or it was not learned.
	InitialEndBookmark *wire.Bookmark
	// PlainBookmark is a bookmark that does not end the initial events; nil until one was learned.
	PlainBookmark *wire.Bookmark
}

// Form returns the form in which the broadcaster's watchers write events.
func (b *Broadcaster) Form() *Form { return b.form.Load() }

// SetPlainBookmark sets the form's PlainBookmark.
func (b *Broadcaster) SetPlainBookmark(bookmark *wire.Bookmark) {
	b.updateForm(func(f *Form) { f.PlainBookmark = bookmark })
}

// SetEnvelope replaces an envelope that did not know the form of items by one that knows it. No event of an object may have
// been written before.
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

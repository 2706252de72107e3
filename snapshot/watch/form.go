package watch

import "github.com/listproxy/listproxy/snapshot/wire"

// Form is the form in which the upstream writes the events of a collection. It is immutable.
type Form struct {
	Envelope *wire.Envelope
	// ContentType is the content type of the upstream's watches.
	ContentType string
	// Compressed reports whether the upstream compresses a streaming list with bookmarks for a client that accepts
	// gzip.
	Compressed bool
	// InitialEnd is the bookmark that ends the initial events; nil if the upstream has none, or it was not learned.
	InitialEnd *wire.Bookmark
	// Plain is any other bookmark; nil until one was learned.
	Plain *wire.Bookmark
}

// Form returns the form in which events are written.
func (b *Broadcaster) Form() *Form { return b.form.Load() }

// SetBookmark sets Form.Plain.
func (b *Broadcaster) SetBookmark(plain *wire.Bookmark) {
	b.updateForm(func(f *Form) { f.Plain = plain })
}

// SetEnvelope replaces the envelope by one in which the form of items is known. No event may have been written before.
func (b *Broadcaster) SetEnvelope(envelope *wire.Envelope) {
	b.updateForm(func(f *Form) { f.Envelope = envelope })
}

// updateForm changes a copy of the form and stores it. It calls edit again if another goroutine has changed the form
// meanwhile.
func (b *Broadcaster) updateForm(edit func(*Form)) {
	for {
		previous := b.form.Load()
		next := *previous
		edit(&next)
		if b.form.CompareAndSwap(previous, &next) {
			return
		}
	}
}

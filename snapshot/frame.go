package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Frame is how the upstream writes a list of one collection: all that is not an object. It is
// immutable.
//
// The API server has two ways to write JSON (list-contract.md, "Bytes"): built-in types keep
// the order of their Go structs, and their items carry no kind and apiVersion; custom resources
// have all keys sorted, always a "continue", and items that keep both.
type Frame struct {
	// ContentType of the upstream's lists.
	ContentType string
	// Warnings are the values of the Warning headers that come with every list.
	Warnings []string

	apiVersion, kind string
	sorted           bool
	// emptyItems is what the upstream writes for no items.
	emptyItems string
	// item is how an object in a watch event becomes an item of a list.
	item itemForm
}

// itemForm is how an object looks in a list and in a watch event.
type itemForm struct {
	// known is false until an object was seen in both.
	known            bool
	apiVersion, kind string
	// lead is what the object has after its first byte in an event, and not in a list.
	lead string
}

// errForm means that lists and watches cannot be reconciled: the collection is not cached.
var errForm = errors.New("lists and watches of this resource cannot be reconciled byte for byte")

// learnFrame makes the frame of a real list and proves it: written with the frame, the list
// must give the same bytes.
func learnFrame(body []byte, contentType string, warnings []string, emptyItems string) (*Frame, list, error) {
	l, err := parseList(body)
	if err != nil {
		return nil, l, fmt.Errorf("%w: %w", errForm, err)
	}
	if l.itemsNull {
		emptyItems = "null"
	} else if emptyItems == "" {
		emptyItems = "[]"
	}
	f := &Frame{
		ContentType: contentType,
		Warnings:    slices.Clone(warnings),
		apiVersion:  l.apiVersion,
		kind:        l.kind,
		emptyItems:  emptyItems,
	}
	for _, f.sorted = range []bool{false, true} {
		if bytes.Equal(f.render(l.meta, l.items), body) {
			return f, l, nil
		}
	}
	return nil, l, fmt.Errorf("%w: a list has an unknown form", errForm)
}

// AppendHead appends what comes before the first of n items.
func (f *Frame) AppendHead(dst []byte, meta ListMeta, n int) []byte {
	if f.sorted {
		dst = append(dst, `{"apiVersion":`...)
		dst = strconv.AppendQuote(dst, f.apiVersion)
	} else {
		dst = append(dst, `{"kind":`...)
		dst = strconv.AppendQuote(dst, f.kind)
		dst = append(dst, `,"apiVersion":`...)
		dst = strconv.AppendQuote(dst, f.apiVersion)
		dst = append(dst, `,"metadata":`...)
		dst = f.appendMeta(dst, meta)
	}
	dst = append(dst, `,"items":`...)
	if n == 0 {
		return append(dst, f.emptyItems...)
	}
	return append(dst, '[')
}

// AppendItemHead appends what comes before item i, which has size bytes.
func (f *Frame) AppendItemHead(dst []byte, i, size int) []byte {
	_ = size // JSON needs no length
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// AppendTail appends what comes after the last of n items.
func (f *Frame) AppendTail(dst []byte, meta ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	if f.sorted {
		dst = append(dst, `,"kind":`...)
		dst = strconv.AppendQuote(dst, f.kind)
		dst = append(dst, `,"metadata":`...)
		dst = f.appendMeta(dst, meta)
	}
	return append(dst, "}\n"...)
}

func (f *Frame) appendMeta(dst []byte, m ListMeta) []byte {
	if f.sorted {
		dst = append(dst, `{"continue":`...)
		dst = strconv.AppendQuote(dst, m.Continue)
		if m.HasRemaining {
			dst = append(dst, `,"remainingItemCount":`...)
			dst = strconv.AppendInt(dst, m.Remaining, 10)
		}
		dst = append(dst, `,"resourceVersion":"`...)
		dst = strconv.AppendUint(dst, m.Revision, 10)
		return append(dst, `"}`...)
	}
	dst = append(dst, `{"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, m.Revision, 10)
	dst = append(dst, '"')
	if m.Continue != "" {
		dst = append(dst, `,"continue":`...)
		dst = strconv.AppendQuote(dst, m.Continue)
	}
	if m.HasRemaining {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, m.Remaining, 10)
	}
	return append(dst, '}')
}

// render writes a whole list.
func (f *Frame) render(meta ListMeta, items [][]byte) []byte {
	dst := f.AppendHead(nil, meta, len(items))
	for i, item := range items {
		dst = f.AppendItemHead(dst, i, len(item))
		dst = append(dst, item...)
	}
	return f.AppendTail(dst, meta, len(items))
}

// Custom reports whether this is how custom resources are written.
func (f *Frame) Custom() bool { return f.sorted }

func (f *Frame) equal(g *Frame) bool {
	return f.ContentType == g.ContentType && slices.Equal(f.Warnings, g.Warnings) &&
		f.apiVersion == g.apiVersion && f.kind == g.kind && f.sorted == g.sorted &&
		f.emptyItems == g.emptyItems && (f.item == g.item || !f.item.known)
}

// learnItem learns how objects look from one that was seen, at the same revision, in a list and
// in a watch event.
func learnItem(inList, inEvent []byte) (itemForm, error) {
	m, err := parseMeta(inEvent)
	if err != nil {
		return itemForm{}, fmt.Errorf("%w: %w", errForm, err)
	}
	form := itemForm{known: true, apiVersion: m.apiVersion, kind: m.kind}
	if bytes.Equal(inList, inEvent) {
		return form, nil
	}
	form.lead = fmt.Sprintf(`"kind":%q,"apiVersion":%q,`, m.kind, m.apiVersion)
	if cut, err := form.cut(bytes.Clone(inEvent)); err != nil || !bytes.Equal(cut, inList) {
		return itemForm{}, fmt.Errorf("%w: an object differs in a list and in a watch at the same revision", errForm)
	}
	return form, nil
}

// cut returns the list form of an object from an event. It works in the memory of inEvent,
// which must be the caller's own.
func (i itemForm) cut(inEvent []byte) ([]byte, error) {
	if i.lead == "" {
		return inEvent, nil
	}
	if !bytes.HasPrefix(inEvent, []byte("{"+i.lead)) {
		return nil, poison("an object in a watch event has another form than was learned")
	}
	inEvent = inEvent[len(i.lead):]
	inEvent[0] = '{'
	return inEvent, nil
}

package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/fields"
)

// The fields that a field selector may name for nearly every resource. Some resources have no namespace field.
const (
	NameField      = "metadata.name"
	NamespaceField = "metadata.namespace"
)

// UIDField names the UID in a shard selector, which selects objects by the hash of their UID or namespace. Field selectors
// cannot name the UID.
const UIDField = "object.metadata.uid"

// AllShards is the shard selector that selects all objects.
const AllShards = "shardRange(" + UIDField + ", '0x0000000000000000', '0x10000000000000000')"

// Envelope says how the upstream writes the lists of one collection: all bytes around the objects. It also has the fields
// that the upstream accepts in selectors. It must not be changed once it is shared.
//
// For example, a list of pods in JSON has these parts. (In protobuf, each item has a head, and there are no separators.)
//
//	head                                                       item              separator  item              tail
//	{"kind":"PodList","apiVersion":"v1","metadata":{…},"items":[  {"metadata":…}     ,          {"metadata":…}     ]}⏎
type Envelope struct {
	// Encoding is the encoding of lists and events.
	Encoding Encoding
	// ContentType is the content type of the upstream's lists.
	ContentType string
	// Headers are the headers that come with every list, besides Content-Type and Audit-Id.
	Headers http.Header

	// APIVersion is the apiVersion of lists.
	APIVersion string
	// EmptyItems is the JSON that the upstream writes for no items: "[]" or "null".
	EmptyItems string
	// Item says how an item differs from the object in an event. It is unknown until an object was seen in both.
	Item ItemForm
	// HasNamespaceField reports whether the upstream accepts metadata.namespace in field selectors of this resource.
	HasNamespaceField bool
	// Sharded reports whether the upstream supports shard selectors, and repeats them in the metadata.shardInfo of lists.
	Sharded bool
	// Paths has the paths of the other fields that the upstream accepts in a selector.
	Paths *FieldPaths

	kind string // The kind of lists, like PodList.
	// sorted reports whether the members of lists in JSON are in the order of their names, as those of custom resources are:
	//
	//	{"apiVersion":"x/v1","items":[…],"kind":"XList","metadata":{"continue":"",…}}
	sorted bool
}

// ItemForm says how an object in a watch event differs from the same object in a list:
//
//	                           in a list                    in an event
//	JSON of a built-in type    {"metadata":…                {"kind":"Pod","apiVersion":"v1","metadata":…
//	JSON of a custom resource  {"apiVersion":"x/v1",…       the same bytes
//	protobuf                   a message                    the message in a wrapper, with APIVersion and Kind
type ItemForm struct {
	// Known reports whether the form was learned from an object in an event and in a list.
	Known            bool
	APIVersion, Kind string
	// lead is the text that only the event has after the opening brace: "kind":"Pod","apiVersion":"v1", including the last comma.
	// It is empty for a custom resource and in protobuf.
	lead string
}

// ErrForm means that lists or events have an unknown form, so that the collection cannot be kept in memory.
var ErrForm = errors.New("lists and watches of this resource cannot be reconciled byte for byte")

// LearnEnvelope returns the envelope of a list that the upstream wrote. It returns [ErrForm] if no envelope writes the list
// with the same bytes. emptyItems is the [Envelope.EmptyItems] of an empty list of the same collection; "" if none was seen.
func LearnEnvelope(encoding Encoding, body []byte, contentType, emptyItems string) (*Envelope, error) {
	l, err := encoding.ParseList(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	e := &Envelope{
		Encoding:    encoding,
		ContentType: contentType,
		APIVersion:  l.APIVersion,
		kind:        l.kind,
		EmptyItems:  cmp.Or(emptyItems, "[]"),
		Paths:       NewFieldPaths(nil),
	}
	if l.itemsNull {
		e.EmptyItems = "null"
	}
	for _, sorted := range []bool{false, true} {
		e.sorted = sorted
		if bytes.Equal(e.Render(l.Meta, l.Items), body) {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w: a list has an unknown form", ErrForm)
}

// Frame returns the bytes before the first of n items, and after the last. size is the number of bytes of all items, with what
// AppendItemHead appends before each.
func (e *Envelope) Frame(meta ListMeta, n, size int) (head, tail []byte) {
	return e.Encoding.frame(e, meta, n, size)
}

// AppendItemHead appends the bytes before item i, which has size bytes.
func (e *Envelope) AppendItemHead(dst []byte, i, size int) []byte {
	if i > 0 {
		dst = append(dst, e.Encoding.separator()...)
	}
	return e.Encoding.appendItemHead(dst, size)
}

// Separator returns the bytes between two items, which AppendItemHead appends before each item except the first.
func (e *Envelope) Separator() string { return e.Encoding.separator() }

// Render returns a whole list.
func (e *Envelope) Render(meta ListMeta, items [][]byte) []byte {
	size := 0            // protobuf needs the size of all items in the head
	var scratch [16]byte // the bytes before an item are fewer
	for i, item := range items {
		size += len(e.AppendItemHead(scratch[:0], i, len(item))) + len(item)
	}
	dst, tail := e.Frame(meta, len(items), size)
	for i, item := range items {
		dst = e.AppendItemHead(dst, i, len(item))
		dst = append(dst, item...)
	}
	return append(dst, tail...)
}

// CanSelect reports whether the upstream accepts a field selector. If so, the values of its fields are kept with the
// objects.
func (e *Envelope) CanSelect(selector fields.Selector) bool {
	for _, term := range selector.Requirements() {
		if !e.acceptsField(term.Field) {
			return false
		}
	}
	return true
}

// acceptsField reports whether a field selector may name a field.
func (e *Envelope) acceptsField(name string) bool {
	switch name {
	case NameField:
		return true
	case NamespaceField:
		return e.HasNamespaceField
	case UIDField: // Paths may have it for shard selectors.
		return false
	}
	return e.Paths.Find(name) >= 0
}

// AgreesWith reports whether clients that have read answers written with e can go on with other: other writes the same bytes and
// headers, and accepts the same selectors. Both must have the same Encoding. If e.Item is unknown, no event was written with e, so
// any other.Item will do.
func (e *Envelope) AgreesWith(other *Envelope) bool {
	wanted := *other
	if !e.Item.Known {
		wanted.Item = e.Item
	}
	return reflect.DeepEqual(*e, wanted)
}

// LearnItem returns the ItemForm of an object that was seen in a list and in a watch event at the same revision.
func LearnItem(encoding Encoding, inList []byte, ev Event) (ItemForm, error) {
	form := ItemForm{Known: true, APIVersion: ev.Meta.APIVersion, Kind: ev.Meta.Kind}
	builtinLead := fmt.Sprintf(`"kind":%q,"apiVersion":%q,`, form.Kind, form.APIVersion)
	for _, lead := range []string{"", builtinLead} {
		form.lead = lead
		object, err := encoding.ItemOf(form, bytes.Clone(ev.Object)) // ItemOf may change what it gets.
		if err == nil && bytes.Equal(object, inList) {
			return form, nil
		}
	}
	return ItemForm{}, fmt.Errorf("%w: an object differs in a list and in a watch at the same revision", ErrForm)
}

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

// Envelope says how the upstream writes the lists of one collection: all bytes around the items. It also has the fields that
// the upstream accepts in selectors. An Envelope that is shared must not be changed.
//
// For example, a list of pods in JSON has these parts. (In protobuf, each item has a tag, and there are no separators.)
//
//	list head                                                  item              separator  item              list tail
//	{"kind":"PodList","apiVersion":"v1","metadata":{…},"items":[  {"metadata":…}     ,          {"metadata":…}     ]}⏎
type Envelope struct {
	// Encoding is the encoding of lists and events.
	Encoding Encoding
	// ContentType is the content type of the upstream's lists.
	ContentType string
	// Headers are the headers that come with every list, besides Content-Type and Audit-Id.
	Headers http.Header

	// APIVersion and kind are the type of lists: v1 and PodList, for example.
	APIVersion, kind string
	// EmptyItems is the JSON that the upstream writes for no items: "[]" or "null".
	EmptyItems string
	// ItemForm says how an item differs from the same object in an event. ItemForm.Known is false until an object was seen in
	// both.
	ItemForm ItemForm
	// HasNamespaceField reports whether the upstream accepts metadata.namespace in field selectors of this resource.
	HasNamespaceField bool
	// Sharded reports whether the upstream supports shard selectors, and repeats them in the metadata.shardInfo of lists.
	Sharded bool
	// Paths has the fields besides metadata.name and metadata.namespace that the upstream accepts in field selectors, and their
	// paths in an object.
	Paths *FieldPaths

	// sorted reports whether lists in JSON have their members in the order of the names, as lists of custom resources do:
	//
	//	{"apiVersion":"x/v1","items":[…],"kind":"XList","metadata":{"continue":"",…}}
	sorted bool
}

// ItemForm says how an object in an event differs from the same object in a list:
//
//	                           in a list                    in an event
//	JSON of a built-in type    {"metadata":…                {"kind":"Pod","apiVersion":"v1","metadata":…
//	JSON of a custom resource  {"apiVersion":"x/v1",…       the same bytes
//	protobuf                   a message                    the message in a wrapper, with APIVersion and Kind
type ItemForm struct {
	// Known reports whether the form was learned from an object in an event and in a list.
	Known            bool
	APIVersion, Kind string
	// eventMembers is the JSON that an object has in events but not in lists: "kind":"Pod","apiVersion":"v1", with the last
	// comma. It follows the opening brace. It is empty for custom resources and in protobuf.
	eventMembers string
}

// ErrForm means that lists or events have an unknown form, so that the collection cannot be kept in memory.
var ErrForm = errors.New("lists and watches of this resource cannot be reconciled byte for byte")

// LearnEnvelope returns an envelope that writes the upstream's list in body with the same bytes, or [ErrForm] if no envelope
// does.
//
// emptyItems is the [Envelope.EmptyItems] that was learned from an empty list of the same collection, since a list with items
// does not show it; "" if no empty list was seen.
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
	if l.itemsAreNull {
		e.EmptyItems = "null"
	}
	for _, sorted := range []bool{false, true} { // Both orders of the list's members are tried.
		e.sorted = sorted
		if bytes.Equal(e.Render(l.Meta, l.Items), body) {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w: a list has an unknown form", ErrForm)
}

// Frame returns the head and the tail of a list: the bytes before the first item, and after the last. count is the number of
// items. itemsSize is the number of bytes between the head and the tail: those of all items and their item heads.
func (e *Envelope) Frame(meta ListMeta, count, itemsSize int) (head, tail []byte) {
	return e.Encoding.listFrame(e, meta, count, itemsSize)
}

// AppendItemHead appends the head of item i, which has size bytes: the separator, except for item 0, and the item tag.
func (e *Envelope) AppendItemHead(dst []byte, i, size int) []byte {
	if i > 0 {
		dst = append(dst, e.Encoding.separator()...)
	}
	return e.Encoding.appendItemTag(dst, size)
}

// Separator returns the bytes between two items of a list.
func (e *Envelope) Separator() string { return e.Encoding.separator() }

// Render returns a whole list.
func (e *Envelope) Render(meta ListMeta, items [][]byte) []byte {
	itemsSize := 0       // In protobuf, the list head states a size that includes this one.
	var scratch [16]byte // more than an item head
	for i, item := range items {
		itemsSize += len(e.AppendItemHead(scratch[:0], i, len(item))) + len(item)
	}
	written, tail := e.Frame(meta, len(items), itemsSize) // the list head is written first
	for i, item := range items {
		written = append(e.AppendItemHead(written, i, len(item)), item...)
	}
	return append(written, tail...)
}

// CanSelect reports whether the upstream can select by each field that the selector names. Otherwise, the upstream refuses it.
func (e *Envelope) CanSelect(selector fields.Selector) bool {
	for _, requirement := range selector.Requirements() {
		if !e.canSelectBy(requirement.Field) {
			return false
		}
	}
	return true
}

// canSelectBy reports whether the upstream can select by a field.
func (e *Envelope) canSelectBy(field string) bool {
	switch field {
	case NameField:
		return true
	case NamespaceField:
		return e.HasNamespaceField
	case UIDField: // Only shard selectors name the UID, even if Paths has it.
		return false
	}
	return e.Paths.Find(field) >= 0
}

// CanBeReplacedBy reports whether later can take the place of e without any client noticing it: later writes the same bytes and
// headers as e, and accepts the same selectors. If the ItemForm of e is not known, no event was written with e, so later may
// have any ItemForm. Both must have the same Encoding.
func (e *Envelope) CanBeReplacedBy(later *Envelope) bool {
	candidate := *later
	if !e.ItemForm.Known {
		candidate.ItemForm = e.ItemForm
	}
	return reflect.DeepEqual(*e, candidate)
}

// LearnItem returns the ItemForm of an object that was seen both in a list, as inList, and in the event ev at the same
// revision. It tries both forms, that of custom resources and that of built-in types. It returns [ErrForm] if neither explains
// the difference.
func LearnItem(encoding Encoding, inList []byte, ev Event) (ItemForm, error) {
	form := ItemForm{Known: true, APIVersion: ev.Meta.APIVersion, Kind: ev.Meta.Kind}
	ofBuiltinType := fmt.Sprintf(`"kind":%q,"apiVersion":%q,`, form.Kind, form.APIVersion)
	for _, eventMembers := range []string{"", ofBuiltinType} { // Custom resources have none.
		form.eventMembers = eventMembers
		item, err := encoding.ItemOf(form, bytes.Clone(ev.Object)) // ItemOf may change the clone.
		if err == nil && bytes.Equal(item, inList) {
			return form, nil
		}
	}
	return ItemForm{}, fmt.Errorf("%w: an object differs in a list and in a watch at the same revision", ErrForm)
}

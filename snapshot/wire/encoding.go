package wire

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/media"
)

// Encoding splits the upstream's lists and events into their parts, and writes the bytes around objects. It copies the bytes of
// objects, and never decodes and encodes them again. For bytes that it does not completely understand, it returns errMalformed
// or an [InconsistencyError].
//
// These words have the same meaning in the whole package. ([Envelope] has an example of a list, and [Envelope.AppendEventHead]
// one of an event.)
//
//	item                 one of a list's objects
//	list head, tail      the bytes of a list before its first item, and after its last
//	separator            the bytes between two items: a comma in JSON, none in protobuf
//	item tag             the bytes that belong to an item and come before it: a field's tag and length in protobuf, none in JSON
//	item head            the separator and the item tag; the first item has no separator
//	record               the bytes of one event in a watch
//	event head, end      the bytes of an event before the item, and after it
//	[Event]              a parsed record
//	Object of an Event   the bytes of the object in the record, which may differ from the item (see [ItemForm])
type Encoding interface {
	// Reading:

	// ParseList splits a whole list. The items are parts of body.
	ParseList(body []byte) (List, error)
	// ParseItem reads the metadata of an item. It refuses an item with two names or two revisions, since some clients could
	// read the first, and others the second.
	ParseItem(item []byte) (ObjectMeta, error)
	// ReadRecord reads the next record of a watch into the memory of buf, whose length must be 0. It returns one of these
	// errors:
	//   - an InconsistencyError if the event is too large
	//   - an error that wraps [ErrEnded] and io.EOF if the watch ended between two events
	//   - an error that wraps [ErrEnded] and another cause if the watch ended inside an event, or the connection failed
	ReadRecord(in *bufio.Reader, buf []byte) ([]byte, error)
	// ItemOf returns the item for the Object of an Event. It may change object, and the item may use object's memory.
	ItemOf(form ItemForm, object []byte) ([]byte, error)

	// parseEvent parses a record for ParseEvent. Event.Object is a part of record. For an ERROR event, ParseEvent uses only
	// Type and Object.
	parseEvent(record []byte) (Event, error)
	// readValues sets values[i] to the value of field i of paths, for each field that the item has. It leaves the other values
	// as they are, so the caller must have set each to its Field.Zero.
	readValues(paths *FieldPaths, item []byte, values []string) error

	// Writing:

	// Revise returns an item with another resourceVersion, in three parts. Only the middle part is new: before and after are
	// parts of item. ParseItem must accept the item, and return a revision that is not 0.
	Revise(item []byte, revision uint64) (before, revised, after []byte)

	// appendItemTag appends the tag of an item of size bytes. It appends nothing in JSON.
	appendItemTag(dst []byte, size int) []byte
	// separator returns the separator. It is empty in protobuf.
	separator() string
	// listFrame returns the head and the tail of a list (see [Envelope.Frame]).
	listFrame(e *Envelope, meta ListMeta, count, itemsSize int) (head, tail []byte)
	// appendEventHead appends the head of an event with an item of size bytes. After the head, the caller must write the item
	// without its first skip bytes: in JSON, the head may have the item's opening brace already (see
	// [Envelope.AppendEventHead]).
	appendEventHead(dst []byte, eventType string, form ItemForm, size int) (out []byte, skip int)
	// eventEnd returns the end of an event.
	eventEnd() string
}

// EncodingOf returns the encoding of a representation.
func EncodingOf(r media.Representation) Encoding {
	if r.IsProtobuf() {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}

// maxEvent is the largest size of an event, in bytes. By default, etcd stores objects of up to 1.5 MiB. Built-in types are
// stored in protobuf, and the JSON of such an object may be a few times as long.
const maxEvent = 64 << 20

// ErrEnded means that a watch ended: at its timeout, because the connection failed, or because its context ended.
var ErrEnded = errors.New("the watch ended")

// errMalformed means that an API server would not have sent these bytes here.
var errMalformed = errors.New("not in the expected form")

// ObjectMeta has the fields of an object that are read for every object.
type ObjectMeta struct {
	APIVersion, Kind string
	Namespace, Name  string
	Revision         uint64
	Labels           Labels
}

// List has the parts of a list.
type List struct {
	APIVersion, kind string // v1 and PodList, for example
	Meta             ListMeta
	Items            [][]byte
	itemsAreNull     bool // The JSON has "items":null, as a metadata-only list without items does.
}

// ListMeta is the metadata of a list.
type ListMeta struct {
	Revision uint64
	// Continue is the token for the next page; "" on the last page.
	Continue string
	// Remaining is the number of objects after this page; 0 if the list does not have it.
	Remaining int64
	// Shards is the selector of the shards whose objects are in the list; "" if the list has no such selector.
	Shards string
}

// newListMeta converts apimachinery's type.
func newListMeta(parsed metav1.ListMeta) (m ListMeta, err error) {
	m.Continue = parsed.Continue
	if parsed.RemainingItemCount != nil {
		m.Remaining = *parsed.RemainingItemCount
	}
	if parsed.ShardInfo != nil {
		m.Shards = parsed.ShardInfo.Selector
	}
	m.Revision, err = parseRevision(parsed.ResourceVersion)
	return m, err
}

// toAPIMachinery converts to apimachinery's type, which can be encoded.
func (m ListMeta) toAPIMachinery() metav1.ListMeta {
	converted := metav1.ListMeta{ResourceVersion: strconv.FormatUint(m.Revision, 10), Continue: m.Continue}
	if m.Remaining != 0 {
		converted.RemainingItemCount = &m.Remaining
	}
	if m.Shards != "" {
		converted.ShardInfo = &metav1.ShardInfo{Selector: m.Shards}
	}
	return converted
}

// parseRevision parses a resourceVersion. An empty one is 0.
func parseRevision(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseUint(text, 10, 63) // revisions of etcd are of type int64
	if err != nil {
		return 0, fmt.Errorf("%w: resourceVersion %q is not a number", errMalformed, text)
	}
	return revision, nil
}

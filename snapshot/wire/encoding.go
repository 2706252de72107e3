package wire

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/media"
)

// Encoding splits lists and events of the upstream into their parts, and says how to write them. The bytes of objects are
// never decoded and encoded again. Bytes that an Encoding does not completely understand are an error: errShape or an
// [InconsistencyError].
type Encoding interface {
	// Reading:

	// ParseList splits a whole list. The items are parts of body.
	ParseList(body []byte) (List, error)
	// ParseItem reads the metadata of a list's item. It refuses an item with two names or two revisions, since a client
	// could read either.
	ParseItem(item []byte) (ObjectMeta, error)
	// ReadRecord reads the next record of a watch, the bytes of one event. It appends them to buf, which must be empty. The
	// error wraps [ErrEnded], or is an InconsistencyError if the event is too large. It wraps io.EOF only if the watch ended
	// between two events.
	ReadRecord(in *bufio.Reader, buf []byte) ([]byte, error)
	// ItemOf returns the object of an event as an item of a list. It takes object over: it may change it, and the item may share
	// its memory.
	ItemOf(form ItemForm, object []byte) ([]byte, error)

	// parseEvent parses a record for ParseEvent. The event's object is a part of record. The Meta of an ERROR event is not used.
	parseEvent(record []byte) (Event, error)
	// readValues sets values[i] to the value of field i of paths, for each field that the item has, and leaves the others.
	readValues(paths *FieldPaths, item []byte, values []string) error

	// Writing:

	// Revise returns a list's item with another resourceVersion, in three parts. Only the middle part is new: before and
	// after are parts of item. ParseItem must accept the item, and return a revision that is not 0.
	Revise(item []byte, revision uint64) (before, revised, after []byte)

	// appendItemHead appends the bytes before an item of size bytes, without the separator.
	appendItemHead(dst []byte, size int) []byte
	// separator returns the bytes between two items.
	separator() string
	// frame implements [Envelope.Frame].
	frame(e *Envelope, meta ListMeta, n, size int) (head, tail []byte)
	// appendEventHead appends the bytes that an event has before an item of size bytes. The caller leaves out the first skip
	// bytes of the item (see [Envelope.AppendEventHead]).
	appendEventHead(dst []byte, eventType string, form ItemForm, size int) (out []byte, skip int)
	// eventEnd returns the bytes after the item.
	eventEnd() string
}

// EncodingOf returns the encoding of a representation.
func EncodingOf(r media.Representation) Encoding {
	if r.IsProtobuf() {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}

// maxEvent is the largest size of an event, in bytes. etcd stores up to 1.5 MiB by default, and the JSON of that may have a
// few times as many bytes.
const maxEvent = 64 << 20

// ErrEnded means that a watch ended: at its timeout, or because the connection failed.
var ErrEnded = errors.New("the watch ended")

// ObjectMeta has the fields of an object that a feed reads.
type ObjectMeta struct {
	APIVersion, Kind string
	Namespace, Name  string
	Revision         uint64
	Labels           Labels
}

// List has the parts of a list.
type List struct {
	APIVersion string
	Meta       ListMeta
	Items      [][]byte
	kind       string
	itemsNull  bool // The JSON has null instead of an array.
}

// ListMeta has the metadata of a list.
type ListMeta struct {
	Revision uint64
	// Continue is the token for the next page; "" on the last page.
	Continue string
	// Remaining is the number of objects after this page; 0 if the list does not have it.
	Remaining int64
	// Shards is the selector of the shards whose objects are in the list; "" if the list has no such selector.
	Shards string
}

// newListMeta returns the metadata of a list from apimachinery's type.
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

// encodable returns the metadata in apimachinery's type.
func (m ListMeta) encodable() metav1.ListMeta {
	encodable := metav1.ListMeta{ResourceVersion: strconv.FormatUint(m.Revision, 10), Continue: m.Continue}
	if m.Remaining != 0 {
		encodable.RemainingItemCount = &m.Remaining
	}
	if m.Shards != "" {
		encodable.ShardInfo = &metav1.ShardInfo{Selector: m.Shards}
	}
	return encodable
}

// parseRevision parses a resourceVersion. An empty one is 0.
func parseRevision(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(text, 10, 63) // revisions of etcd are of type int64
	if err != nil {
		return 0, fmt.Errorf("%w: resourceVersion %q is not a number", errShape, text)
	}
	return rev, nil
}

package watches

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The types of events.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// event is one of a watch.
type event struct {
	kind string
	// object has the bytes as they were sent. The frame around them is made of these and of kind, and
	// of nothing else: the decoders refuse any other.
	object []byte
	// key is the object's namespace/name; the name alone, if it is in no namespace.
	key      string
	revision uint64
	// end is true of the bookmark that follows the initial events.
	end bool
}

func (e event) String() string {
	end := ""
	if e.end {
		end = " (end of the initial events)"
	}
	return fmt.Sprintf("%s %s at %d%s", e.kind, e.key, e.revision, end)
}

// equal reports whether a client sees the same.
func (e event) equal(other event) bool {
	return e.kind == other.kind && bytes.Equal(e.object, other.object)
}

// decoder reads one event.
type decoder func(*bufio.Reader) (event, error)

// errFrame is a frame that no API server writes.
var errFrame = errors.New("not a frame as kube-apiserver writes it")

// decodeJSON reads one line.
func decodeJSON(in *bufio.Reader) (event, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return event{}, err
	}
	var read struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &read); err != nil {
		return event{}, fmt.Errorf("%w: %q: %w", errFrame, line, err)
	}
	e := event{kind: read.Type, object: read.Object}
	if !bytes.Equal(line, frameJSON(e)) {
		return e, fmt.Errorf("%w: %q", errFrame, line)
	}
	if e.kind == failed {
		return e, nil
	}
	e.object = withoutTable(e.object)
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(e.object, &o); err != nil {
		return e, fmt.Errorf("%w: %q: %w", errFrame, line, err)
	}
	return e.of(&o.ObjectMeta)
}

// withoutTable returns the object of a Table's one row, in place of the Table, whose cells age.
// What is no Table is returned as it is.
func withoutTable(object []byte) []byte {
	if !bytes.HasPrefix(object, []byte(`{"kind":"Table"`)) {
		return object
	}
	var table struct {
		Rows []struct{ Object json.RawMessage }
	}
	if json.Unmarshal(object, &table) != nil || len(table.Rows) != 1 {
		return object
	}
	return table.Rows[0].Object
}

// of reads what an event tells of its object.
func (e event) of(o *metav1.ObjectMeta) (event, error) {
	revision, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	if err != nil {
		return e, fmt.Errorf("%w: the revision of %q: %w", errFrame, e.object, err)
	}
	e.revision, e.key = revision, keyOf(o)
	e.end = e.kind == bookmark && o.Annotations[metav1.InitialEventsAnnotationKey] == "true"
	return e, nil
}

// keyOf returns what initial events are ordered by.
func keyOf(o *metav1.ObjectMeta) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

func frameJSON(e event) []byte {
	return []byte(`{"type":"` + e.kind + `","object":` + string(e.object) + "}\n")
}

// decodeProtobuf reads one frame: four bytes of length, and a WatchEvent.
func decodeProtobuf(in *bufio.Reader) (event, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return event{}, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(in, frame); err != nil {
		return event{}, fmt.Errorf("in a frame of %d bytes: %w", len(frame), io.ErrUnexpectedEOF)
	}
	var read metav1.WatchEvent
	if err := read.Unmarshal(frame); err != nil {
		return event{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	e := event{kind: read.Type, object: read.Object.Raw}
	if !bytes.Equal(frame, frameProtobuf(e)) {
		return e, fmt.Errorf("%w: %q", errFrame, frame)
	}
	if e.kind == failed {
		return e, nil
	}
	var o metav1.PartialObjectMetadata // the metadata are the first field of every object
	unknown, err := unpack(e.object)
	if err == nil {
		err = o.Unmarshal(unknown.Raw)
	}
	if err != nil {
		return e, fmt.Errorf("%w: %w", errFrame, err)
	}
	return e.of(&o.ObjectMeta)
}

// magic is what objects in protobuf begin with.
var magic = []byte("k8s\x00")

// unpack takes an object out of its envelope.
func unpack(b []byte) (runtime.Unknown, error) {
	var u runtime.Unknown
	inner, ok := bytes.CutPrefix(b, magic)
	if !ok {
		return u, errors.New("an object without its envelope")
	}
	return u, u.Unmarshal(inner)
}

func frameProtobuf(e event) []byte {
	object := field(1, e.object)
	return append(field(1, []byte(e.kind)), field(2, object)...)
}

// field is one of a protobuf message, of a type that has a length.
func field(number uint64, content []byte) []byte {
	b := binary.AppendUvarint(nil, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(content)))
	return append(b, content...)
}

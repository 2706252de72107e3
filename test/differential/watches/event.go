package watches

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/harness/events"
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

// errFrame is a frame that no API server writes.
var errFrame = errors.New("not a frame as kube-apiserver writes it")

// next reads one event.
func next(in *events.Reader) (event, error) {
	frame, err := in.Frame()
	if err != nil {
		return event{}, err
	}
	read, err := in.Decode(frame)
	if err != nil {
		return event{}, fmt.Errorf("%w: %q: %w", errFrame, frame, err)
	}
	e := event{kind: read.Type, object: read.Object.Raw}
	if !bytes.Equal(frame, frameJSON(e)) && !bytes.Equal(frame, frameProtobuf(e)) {
		return e, fmt.Errorf("%w: %q", errFrame, frame)
	}
	if e.kind == failed {
		return e, nil
	}
	e.object = withoutTable(e.object)
	o, err := events.Meta(e.object)
	if err == nil {
		e.revision, err = strconv.ParseUint(o.ResourceVersion, 10, 64)
	}
	if err != nil {
		return e, fmt.Errorf("%w: %q: %w", errFrame, e.object, err)
	}
	e.key, e.end = keyOf(&o), e.kind == bookmark && o.Annotations[metav1.InitialEventsAnnotationKey] == "true"
	return e, nil
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

// frameProtobuf has four bytes of length, and a WatchEvent.
func frameProtobuf(e event) []byte {
	frame := slices.Concat(field(1, []byte(e.kind)), field(2, field(1, e.object)))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...) // #nosec G115 -- of what came in such a frame
}

// field is one of a protobuf message, of a type that has a length.
func field(number uint64, content []byte) []byte {
	b := binary.AppendUvarint(nil, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(content)))
	return append(b, content...)
}

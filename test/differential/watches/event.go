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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// errFrame is a frame that no API server writes: not made of an event's type and object alone.
var errFrame = errors.New("not a frame as kube-apiserver writes it")

// next reads one event.
func next(in *events.Reader) (oracle.Event, error) {
	frame, err := in.Frame()
	if err != nil {
		return oracle.Event{}, err
	}
	read, err := in.Decode(frame)
	if err != nil {
		return oracle.Event{}, fmt.Errorf("%w: %q: %w", errFrame, frame, err)
	}
	e := oracle.Event{Type: watch.EventType(read.Type), Object: read.Object.Raw}
	if !bytes.Equal(frame, frameJSON(e)) && !bytes.Equal(frame, frameProtobuf(e)) {
		return e, fmt.Errorf("%w: %q", errFrame, frame)
	}
	if e.Type == watch.Error {
		return e, nil
	}
	e.Object = withoutTable(e.Object)
	o, err := events.Meta(e.Object)
	if err == nil {
		e.Revision, err = strconv.ParseUint(o.ResourceVersion, 10, 64)
	}
	if err != nil {
		return e, fmt.Errorf("%w: %q: %w", errFrame, e.Object, err)
	}
	e.Key, e.EndsInitial = keyOf(&o), e.Type == watch.Bookmark && o.Annotations[metav1.InitialEventsAnnotationKey] == "true"
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

func frameJSON(e oracle.Event) []byte {
	return []byte(`{"type":"` + string(e.Type) + `","object":` + string(e.Object) + "}\n")
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
func frameProtobuf(e oracle.Event) []byte {
	frame := slices.Concat(field(1, []byte(e.Type)), field(2, field(1, e.Object)))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...) // #nosec G115 -- of what came in such a frame
}

// field is one of a protobuf message, of a type that has a length.
func field(number uint64, content []byte) []byte {
	b := binary.AppendUvarint(nil, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(content)))
	return append(b, content...)
}

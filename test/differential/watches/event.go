package watches

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// next reads one event. A frame that no API server writes, which is made of anything else than an event's
// type and object, is none.
func next(in *events.Reader) (oracle.Event, error) {
	read, err := in.Next()
	e := oracle.Event{Type: read.Type, Object: read.Object, Key: keyOf(&read.Meta), Revision: read.Revision, EndsInitial: read.EndsInitial}
	if err == nil && !bytes.Equal(read.Frame, frameJSON(e)) && !bytes.Equal(read.Frame, frameProtobuf(e)) {
		err = fmt.Errorf("not a frame as kube-apiserver writes it: %q", read.Frame)
	}
	return e, err
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

package differential

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// TestDecode: frames are read, and nothing that only looks like one.
func TestDecode(t *testing.T) {
	object := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","namespace":"s","resourceVersion":"5"}}`
	line := `{"type":"ADDED","object":` + object + "}\n"
	read := func(form string, b []byte) (oracle.Event, error) {
		return nextEvent(events.NewReader(bytes.NewReader(b), form))
	}
	e, err := read(ask.JSON, []byte(line))
	if err != nil || e.Key != "s/n" || e.Revision != 5 || string(e.Object) != object || e.EndsInitial {
		t.Errorf("%v, %v", e, err)
	}
	for _, other := range []string{
		`{"object":` + object + `,"type":"ADDED"}` + "\n", `{"type":"ADDED", "object":` + object + "}\n", `{"type":"ADDED","object":` + object + "} \n",
		`{"type":"ADDED","object":` + object + `,"more":1}` + "\n", `{"type":"ADDED","object":{"metadata":{"name":"n"}}}` + "\n", "[]\n", line[:20],
	} {
		if e, err := read(ask.JSON, []byte(other)); err == nil {
			t.Errorf("%q is read as %v", other, e)
		}
	}
	metadata, err := (&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "s", ResourceVersion: "5"}}).Marshal()
	expect.NoError(t, err)
	packed, err := (&runtime.Unknown{Raw: metadata}).Marshal()
	expect.NoError(t, err)
	packed = slices.Concat(magic, packed)
	framed := frameOf(oracle.Event{Type: watch.Modified, Object: packed})
	e, err = read(ask.Protobuf, framed)
	if err != nil || e.Type != watch.Modified || e.Key != "s/n" || e.Revision != 5 || !bytes.Equal(e.Object, packed) {
		t.Errorf("%v, %v", e, err)
	}
	longer := append(slices.Clone(framed[4:]), "\x1a\x01x"...) // one more field
	for _, other := range [][]byte{
		framed[:len(framed)-1], framed[:3], append(binary.BigEndian.AppendUint32(nil, uint32(len(longer))), longer...), // #nosec G115 -- short
	} {
		if e, err := read(ask.Protobuf, other); err == nil {
			t.Errorf("%q is read as %v", other, e)
		}
	}
}

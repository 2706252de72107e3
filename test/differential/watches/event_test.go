package watches

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// TestDecode: frames are read, and nothing that only looks like one.
func TestDecode(t *testing.T) {
	object := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","namespace":"s","resourceVersion":"5"}}`
	line := `{"type":"ADDED","object":` + object + "}\n"
	read := func(form string, b []byte) (oracle.Event, error) {
		return next(events.NewReader(bytes.NewReader(b), form))
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
	metadata := slices.Concat(field(1, []byte("n")), field(3, []byte("s")), field(6, []byte("5")))
	packed := slices.Concat(magic, field(1, nil), field(2, field(1, metadata)), field(3, nil), field(4, nil))
	framed := frameProtobuf(oracle.Event{Type: watch.Modified, Object: packed})
	e, err = read(ask.Protobuf, framed)
	if err != nil || e.Type != watch.Modified || e.Key != "s/n" || e.Revision != 5 || !bytes.Equal(e.Object, packed) {
		t.Errorf("%v, %v", e, err)
	}
	longer := append(slices.Clone(framed[4:]), field(3, []byte("x"))...)
	for _, other := range [][]byte{
		framed[:len(framed)-1], framed[:3], append(binary.BigEndian.AppendUint32(nil, uint32(len(longer))), longer...), // #nosec G115 -- short
	} {
		if e, err := read(ask.Protobuf, other); err == nil {
			t.Errorf("%q is read as %v", other, e)
		}
	}
}

// TestTemplates: a bookmark is compared but for its revision.
func TestTemplates(t *testing.T) {
	var learned templates
	f := form{representation: "json"}
	said := func(revision uint64, body string) []oracle.Event {
		return []oracle.Event{{Type: watch.Bookmark, Revision: revision, Object: fmt.Appendf(nil, body, revision)}}
	}
	if _, _, known := learned.wrong(f, said(12, "at %d")); known {
		t.Error("nothing was learned")
	}
	learned.learn(f, said(12, "at %d"))
	if _, want, known := learned.wrong(f, said(34, "at %d")); !known || want != "" {
		t.Errorf("known: %t, wrong: %q", known, want)
	}
	if _, want, _ := learned.wrong(f, said(34, "At %d")); want == "" {
		t.Error("other bytes pass")
	}
}

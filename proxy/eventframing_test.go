package proxy

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// TestEventFraming splits streams at every two places: an event ends where it does, wherever parts of it end.
func TestEventFraming(t *testing.T) {
	lines := []string{`{"type":"ADDED"}` + "\n", "\n", `{"a":1}` + "\n"}
	var lengths []string
	for _, event := range []string{"one", "", strings.Repeat("x", 300)} {
		var framed bytes.Buffer
		if _, err := protobuf.LengthDelimitedFramer.NewFrameWriter(&framed).Write([]byte(event)); err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, framed.String())
	}
	for contentType, events := range map[string][]string{
		"application/cbor-seq":                             cborEvents(t),
		"application/json":                                 lines,
		"application/json;as=Table;g=meta.k8s.io;v=v1":     lines,
		"application/vnd.kubernetes.protobuf;stream=watch": lengths,
	} {
		stream := strings.Join(events, "")
		for i := range len(stream) + 1 {
			for j := i; j <= len(stream); j += 1 + len(stream)/50 {
				f := framingOf(http.Header{"Content-Type": {contentType}})
				var got []string
				begun := ""
				for _, part := range []string{stream[:i], stream[i:j], stream[j:]} {
					for part != "" {
						n, whole := f.next([]byte(part))
						begun, part = begun+part[:n], part[n:]
						if f.between() != whole {
							t.Fatalf("%s: between events: %t behind %q", contentType, f.between(), begun)
						}
						if whole {
							got, begun = append(got, begun), ""
						}
					}
				}
				if diff := cmp.Diff(events, got); diff != "" || begun != "" {
					t.Fatalf("%s, split at %d and %d (-want +got), and %q:\n%s", contentType, i, j, begun, diff)
				}
			}
		}
	}
}

// cborEvents are events as kube-apiserver writes them, and single items of all other sorts.
func cborEvents(t *testing.T) []string {
	t.Helper()
	const selfDescribed = "\xd9\xd9\xf7"
	events := []string{"\x00", "\xf6", "\xf9\x3c\x00", "\x40", "\x80", "\xa0", "\xc1\x1a\x51\x4b\x67\xb0", "\x20"}
	for _, value := range []any{
		map[string]any{},
		map[string]any{"type": "ADDED", "object": map[string]any{
			"list": []any{int64(-500), int64(1 << 40), 1.5, 1e300, true, nil, []any{}, map[string]any{"a": []any{"b"}}},
			"text": strings.Repeat("x", 300),
		}},
	} {
		encoded, err := direct.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, string(encoded), selfDescribed+string(encoded))
	}
	return events
}

// TestUnframed: nobody knows where an event ends, from the beginning on or from what cannot be followed.
func TestUnframed(t *testing.T) {
	cbor := http.Header{"Content-Type": {"application/cbor-seq"}}
	for name, tt := range map[string]struct {
		header http.Header
		stream string
	}{
		"nothing is said":              {http.Header{}, "a\nb"},
		"another type":                 {http.Header{"Content-Type": {"text/plain"}}, "a\nb"},
		"no type":                      {http.Header{"Content-Type": {"a b; c"}}, "a\nb"},
		"compressed":                   {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, "a\nb"},
		"cbor of indefinite length":    {cbor, "\x81\x9f\x00\xff\x00"},
		"cbor, a break":                {cbor, "\xff\x00"},
		"cbor, a length without sense": {cbor, "\x1c\x00"},
		"cbor, more than can be":       {cbor, "\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x00"},
		"cbor, more pairs than can be": {cbor, "\xbb\x80\x00\x00\x00\x00\x00\x00\x00\x00"},
	} {
		f := framingOf(tt.header)
		for range 2 {
			if n, whole := f.next([]byte(tt.stream)); n != len(tt.stream) || whole || f.between() {
				t.Errorf("%s: %d bytes, whole %t, between %t", name, n, whole, f.between())
			}
		}
	}
}

func FuzzEventFraming(f *testing.F) {
	f.Add(0, []byte("\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xffx"))
	f.Add(1, []byte("a\nb"))
	f.Add(2, []byte("\xa1\x41a\x82\x00\xf6\x9f"))
	framings := []framing{framedByLength, framedByLine, framedByItem}
	f.Fuzz(func(t *testing.T, by int, stream []byte) {
		e := eventFraming{by: framings[uint(by)%uint(len(framings))]}
		for len(stream) > 0 {
			n, whole := e.next(stream)
			if n <= 0 || n > len(stream) || whole != e.between() || !whole && n < len(stream) {
				t.Fatalf("took %d of %d bytes, whole %t", n, len(stream), whole)
			}
			stream = stream[n:]
		}
	})
}

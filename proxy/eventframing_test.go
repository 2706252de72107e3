package proxy

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"application/json": lines,
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

// TestUnknownFraming: what cannot be told ends with what came at once.
func TestUnknownFraming(t *testing.T) {
	for _, h := range []http.Header{
		{},
		{"Content-Type": {"application/cbor-seq"}},
		{"Content-Type": {"a b; c"}},
		{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		f := framingOf(h)
		if n, whole := f.next([]byte("a\nb")); n != 3 || !whole || !f.between() {
			t.Errorf("%v: %d bytes, whole %t", h, n, whole)
		}
	}
}

func FuzzEventFraming(f *testing.F) {
	f.Add(true, []byte("\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xffx"))
	f.Add(false, []byte("a\nb"))
	f.Fuzz(func(t *testing.T, byLength bool, stream []byte) {
		e := eventFraming{by: framedByLine}
		if byLength {
			e.by = framedByLength
		}
		for len(stream) > 0 {
			n, whole := e.next(stream)
			if n <= 0 || n > len(stream) || whole != e.between() || !whole && n < len(stream) {
				t.Fatalf("took %d of %d bytes, whole %t", n, len(stream), whole)
			}
			stream = stream[n:]
		}
	})
}

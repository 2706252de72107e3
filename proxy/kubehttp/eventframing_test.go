package kubehttp

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// TestEventFraming splits streams at every two places: an event ends where it does, wherever parts
// of it end.
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
				f := FramingOf(http.Header{"Content-Type": {contentType}})
				var got []string
				begun := ""
				for _, part := range []string{stream[:i], stream[i:j], stream[j:]} {
					for part != "" {
						n, whole := f.Next([]byte(part))
						begun, part = begun+part[:n], part[n:]
						if f.Between() != whole {
							t.Fatalf("%s: between events: %t behind %q", contentType, f.Between(), begun)
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

// TestMembers splits what kube-apiserver 1.37 sends at every place: a member ends where it does. Of
// gzip that is flushed and not ended, or ended by a compressor of another make, nobody can tell.
func TestMembers(t *testing.T) {
	zip := func(to *bytes.Buffer, end bool, events ...string) string {
		begun := to.Len()
		w := gzip.NewWriter(to)
		for _, event := range events {
			_, _ = w.Write([]byte(event))
		}
		_ = w.Flush()
		if end {
			_ = w.Close()
		}
		return to.String()[begun:]
	}
	var all bytes.Buffer
	members := []string{
		zip(&all, true, strings.Repeat(`{"type":"ADDED"}`+"\n", 1000)), zip(&all, true, "one\n", "two\n"),
		zip(&all, true, ""), zip(&all, true, "\x01\x00\x00\xff\xff"),
	}
	begun := zip(&all, false, "last\n")
	stream := all.String()
	for i := range len(stream) + 1 {
		f := FramingOf(http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}})
		if !f.Between() || f.Known() {
			t.Fatalf("at the beginning: between %t, known %t", f.Between(), f.Known())
		}
		got := []string{""}
		for _, part := range []string{stream[:i], stream[i:]} {
			for part != "" {
				n, whole := f.Next([]byte(part))
				got[len(got)-1] += part[:n]
				part = part[n:]
				if f.Between() != whole {
					t.Fatalf("between members: %t behind %q", f.Between(), got)
				}
				if whole {
					got = append(got, "")
				}
			}
		}
		if diff := cmp.Diff(append(members, begun), got); diff != "" {
			t.Fatalf("split at %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestUnframed: nobody knows where an event ends, in these media types.
func TestUnframed(t *testing.T) {
	for name, tt := range map[string]struct {
		header http.Header
		stream string
	}{
		"nothing is said": {http.Header{}, "a\nb"},
		"another type":    {http.Header{"Content-Type": {"text/plain"}}, "a\nb"},
		"no type":         {http.Header{"Content-Type": {"a b; c"}}, "a\nb"},
		"CBOR":            {http.Header{"Content-Type": {"application/cbor-seq"}}, "\xa0\xa0"},
		"compressed":      {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"zstd"}}, "a\nb"},
		"no member ends":  {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, "a\nb"},
	} {
		f := FramingOf(tt.header)
		for range 2 {
			if n, whole := f.Next([]byte(tt.stream)); n != len(tt.stream) || whole || f.Between() {
				t.Errorf("%s: %d bytes, whole %t, between %t", name, n, whole, f.Between())
			}
		}
	}
}

func FuzzEventFraming(f *testing.F) {
	f.Add(0, []byte("\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xffx"))
	f.Add(1, []byte("a\nb"))
	f.Add(2, []byte("\x1f\x8b\x01\x01\x00\x00\xff\xff12345678\x1f"))
	framings := []framing{framedByLength, framedByLine, framedByMember}
	f.Fuzz(func(t *testing.T, by int, stream []byte) {
		e := EventFraming{by: framings[uint(by)%uint(len(framings))]}
		for len(stream) > 0 {
			n, whole := e.Next(stream)
			if n <= 0 || n > len(stream) || whole != e.Between() || !whole && n < len(stream) {
				t.Fatalf("took %d of %d bytes, whole %t", n, len(stream), whole)
			}
			stream = stream[n:]
		}
	})
}

package kubehttp

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// pieces takes parts of a stream, one after the other, and returns what is whole in it, and the rest.
func pieces(t *testing.T, header http.Header, parts ...string) (whole []string, rest string) {
	t.Helper()
	f := FramingOf(header)
	for _, part := range parts {
		for part != "" {
			n, ends := f.Next([]byte(part))
			if n <= 0 || n > len(part) || !ends && n < len(part) || ends != f.Between() {
				t.Fatalf("it took %d of %d bytes, whole %t, is between two %t", n, len(part), ends, f.Between())
			}
			rest, part = rest+part[:n], part[n:]
			if ends {
				whole, rest = append(whole, rest), ""
			}
		}
	}
	return whole, rest
}

// TestEventFraming splits streams at every two places: an event, or a gzip member, ends where it does,
// wherever parts of it end. In other media types, and encodings, nobody knows.
func TestEventFraming(t *testing.T) {
	lines := []string{`{"type":"ADDED"}` + "\n", "\n", `{"a":1}` + "\n"}
	var lengths []string
	for _, event := range []string{"one", "", strings.Repeat("x", 300)} {
		var framed bytes.Buffer
		_, err := protobuf.LengthDelimitedFramer.NewFrameWriter(&framed).Write([]byte(event))
		expect.NoError(t, err)
		lengths = append(lengths, framed.String())
	}
	var members []string
	for _, events := range []string{strings.Repeat(`{"type":"ADDED"}`+"\n", 1000), "one\ntwo\n", "", "\x01\x00\x00\xff\xff"} {
		members = append(members, proxytest.GzipMember(events))
	}
	unended := proxytest.GzipMember("last\n")
	unended = unended[:len(unended)-len(memberEnd)-memberTrailer]
	for name, tt := range map[string]struct {
		mediaType, encoding string
		whole               []string
		rest                string
		known               bool // where each event ends
	}{
		"JSON":             {mediaType: "application/json", whole: lines, rest: `{"b"`, known: true},
		"JSON of tables":   {mediaType: "application/json;as=Table;g=meta.k8s.io;v=v1", whole: lines, known: true},
		"protobuf":         {mediaType: "application/vnd.kubernetes.protobuf;stream=watch", whole: lengths, rest: "\x00\x00\x00\x02a", known: true},
		"gzip":             {mediaType: "application/json", encoding: "gzip", whole: members, rest: unended},
		"gzip of another":  {mediaType: "application/json", encoding: "gzip", rest: "a\nb"},
		"nothing is said":  {rest: "a\nb"},
		"another type":     {mediaType: "text/plain", rest: "a\nb"},
		"no type":          {mediaType: "a b; c", rest: "a\nb"},
		"CBOR":             {mediaType: "application/cbor-seq", rest: "\xa0\xa0"},
		"another encoding": {mediaType: "application/json", encoding: "zstd", rest: "a\nb"},
	} {
		header := http.Header{"Content-Type": {tt.mediaType}, "Content-Encoding": {tt.encoding}}
		f := FramingOf(header)
		expect.Same(t, []bool{tt.known, tt.whole != nil || tt.encoding == "gzip"}, []bool{f.Known(), f.Between()})
		stream := strings.Join(tt.whole, "") + tt.rest
		for i := range len(stream) + 1 {
			for j := i; j <= len(stream); j += 1 + len(stream)/50 {
				whole, rest := pieces(t, header, stream[:i], stream[i:j], stream[j:])
				if strings.Join(whole, "|") != strings.Join(tt.whole, "|") || rest != tt.rest {
					t.Fatalf("%s, split at %d and %d: %q and %q, want %q and %q", name, i, j, whole, rest, tt.whole, tt.rest)
				}
			}
		}
	}
}

// FuzzEventFraming: whatever comes, and wherever it is split, the same is whole.
func FuzzEventFraming(f *testing.F) {
	f.Add("application/vnd.kubernetes.protobuf", "", "\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xffx", 3)
	f.Add("application/json", "", "a\nb", 2)
	f.Add("application/json", "gzip", "\x1f\x8b\x01\x01\x00\x00\xff\xff12345678\x1f", 5)
	f.Fuzz(func(t *testing.T, mediaType, encoding, stream string, at int) {
		header := http.Header{"Content-Type": {mediaType}, "Content-Encoding": {encoding}}
		at = min(max(at, 0), len(stream))
		whole, rest := pieces(t, header, stream)
		again, restAgain := pieces(t, header, stream[:at], stream[at:])
		expect.Same(t, append(whole, rest), append(again, restAgain))
	})
}

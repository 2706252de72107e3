package forward

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// split reads the parts of a stream one after the other. It returns the whole events or members, and the rest.
func split(t *testing.T, header http.Header, parts ...string) (whole []string, rest string) {
	t.Helper()
	f := framingOf(header)
	for _, part := range parts {
		for part != "" {
			n, ends := f.next([]byte(part))
			if n <= 0 || n > len(part) || !ends && n < len(part) || ends != f.isBetween() {
				t.Fatalf("got %d of %d bytes read, whole %t, between two events %t", n, len(part), ends, f.isBetween())
			}
			rest += part[:n]
			part = part[n:]
			if ends {
				whole = append(whole, rest)
				rest = ""
			}
		}
	}
	return whole, rest
}

// TestEventFraming: wherever a stream is divided into parts, next finds the end of each event, or of each gzip member. In other
// media types and encodings it finds none.
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
	}{
		"JSON":             {mediaType: "application/json", whole: lines, rest: `{"b"`},
		"JSON of tables":   {mediaType: "application/json;as=Table;g=meta.k8s.io;v=v1", whole: lines},
		"protobuf":         {mediaType: "application/vnd.kubernetes.protobuf;stream=watch", whole: lengths, rest: "\x00\x00\x00\x02a"},
		"gzip":             {mediaType: "application/json", encoding: "gzip", whole: members, rest: unended},
		"not really gzip":  {mediaType: "application/json", encoding: "gzip", rest: "a\nb"},
		"no headers":       {rest: "a\nb"},
		"plain text":       {mediaType: "text/plain", rest: "a\nb"},
		"invalid type":     {mediaType: "a b; c", rest: "a\nb"},
		"CBOR":             {mediaType: "application/cbor-seq", rest: "\xa0\xa0"},
		"another encoding": {mediaType: "application/json", encoding: "zstd", rest: "a\nb"},
	} {
		header := http.Header{"Content-Type": {tt.mediaType}, "Content-Encoding": {tt.encoding}}
		f := framingOf(header)
		expect.Same(t, tt.whole != nil || tt.encoding == "gzip", f.isBetween()) // before the first event
		stream := strings.Join(tt.whole, "") + tt.rest
		for i := range len(stream) + 1 {
			for j := i; j <= len(stream); j += 1 + len(stream)/50 {
				whole, rest := split(t, header, stream[:i], stream[i:j], stream[j:])
				if strings.Join(whole, "|") != strings.Join(tt.whole, "|") || rest != tt.rest {
					t.Fatalf("%s, divided at %d and %d: got %q and %q, want %q and %q", name, i, j, whole, rest, tt.whole, tt.rest)
				}
			}
		}
	}
}

// FuzzEventFraming: wherever a stream is divided, next finds the same ends.
func FuzzEventFraming(f *testing.F) {
	f.Add("application/vnd.kubernetes.protobuf", "", "\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xffx", 3)
	f.Add("application/json", "", "a\nb", 2)
	f.Add("application/json", "gzip", "\x1f\x8b\x01\x01\x00\x00\xff\xff12345678\x1f", 5)
	f.Fuzz(func(t *testing.T, mediaType, encoding, stream string, at int) {
		header := http.Header{"Content-Type": {mediaType}, "Content-Encoding": {encoding}}
		at = min(max(at, 0), len(stream))
		whole, rest := split(t, header, stream)
		again, restAgain := split(t, header, stream[:at], stream[at:])
		expect.Same(t, append(whole, rest), append(again, restAgain))
	})
}

package forward

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// split gives the parts of a stream to an endFinder, one after the other. It returns the complete events (or gzip members), and
// the bytes after them. For example, the parts "on", "e\ntw" of JSON give the event "one\n" and the rest "tw".
//
// It also checks each call of next: next stops at the end of an event, or else at the end of the part. In the second case,
// inside is true.
func split(t *testing.T, header http.Header, parts ...string) (whole []string, rest string) {
	t.Helper()
	f := newEndFinder(header)
	for _, part := range parts {
		for part != "" {
			n, ended := f.next([]byte(part)) // n bytes were read, up to the end of an event if ended is true
			if n <= 0 || n > len(part) {
				t.Fatalf("next read %d of %d bytes", n, len(part))
			}
			if !ended && n < len(part) {
				t.Fatalf("next stopped at byte %d of %d, where nothing ends", n, len(part))
			}
			if wantInside := f.framing != unframed && !ended; f.inside != wantInside {
				t.Fatalf("next says that an event ended: %t; inside is %t, want %t", ended, f.inside, wantInside)
			}
			rest += part[:n]
			part = part[n:]
			if ended {
				whole = append(whole, rest)
				rest = ""
			}
		}
	}
	return whole, rest
}

// TestEventFraming: wherever a stream is divided, next finds the end of each event, or of each gzip member. In other media
// types and encodings, next finds no ends.
func TestEventFraming(t *testing.T) {
	lines := []string{`{"type":"ADDED"}` + "\n", "\n", `{"a":1}` + "\n"}
	var frames []string // each is a length and a protobuf event
	for _, event := range []string{"one", "", strings.Repeat("x", 300)} {
		var frame bytes.Buffer
		_, err := protobuf.LengthDelimitedFramer.NewFrameWriter(&frame).Write([]byte(event))
		expect.NoError(t, err)
		frames = append(frames, frame.String())
	}
	const unendedFrame = "\x00\x00\x00\x02a" // a length of two, and one byte
	var members []string
	for _, events := range []string{strings.Repeat(`{"type":"ADDED"}`+"\n", 1000), "one\ntwo\n", "", memberEnd} {
		members = append(members, proxytest.GzipMember(events))
	}
	lastMember := proxytest.GzipMember("last\n")
	unendedMember := lastMember[:len(lastMember)-len(memberEnd)-memberTrailer]
	const cborMaps = "\xa0\xa0" // two empty maps
	for name, tt := range map[string]struct {
		mediaType, encoding string
		findsEnds           bool     // the ends of events can be found in this media type and encoding
		whole               []string // the complete events or members of the stream
		rest                string   // what follows them in the stream
	}{
		"JSON":             {mediaType: "application/json", findsEnds: true, whole: lines, rest: `{"b"`},
		"JSON of tables":   {mediaType: "application/json;as=Table;g=meta.k8s.io;v=v1", findsEnds: true, whole: lines},
		"protobuf":         {mediaType: "application/vnd.kubernetes.protobuf;stream=watch", findsEnds: true, whole: frames, rest: unendedFrame},
		"gzip":             {mediaType: "application/json", encoding: "gzip", findsEnds: true, whole: members, rest: unendedMember},
		"not really gzip":  {mediaType: "application/json", encoding: "gzip", findsEnds: true, rest: "a\nb"},
		"no headers":       {rest: "a\nb"},
		"plain text":       {mediaType: "text/plain", rest: "a\nb"},
		"invalid type":     {mediaType: "a b; c", rest: "a\nb"},
		"CBOR":             {mediaType: "application/cbor-seq", rest: cborMaps},
		"another encoding": {mediaType: "application/json", encoding: "zstd", rest: "a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{"Content-Type": {tt.mediaType}, "Content-Encoding": {tt.encoding}}
			f := newEndFinder(header)
			expect.Same(t, tt.findsEnds, f.framing != unframed)
			// The stream comes in three parts, divided at i and j.
			stream := strings.Join(tt.whole, "") + tt.rest
			for i := range len(stream) + 1 {
				for j := i; j <= len(stream); j += 1 + len(stream)/50 { // about 50 places, or all of a short stream
					whole, rest := split(t, header, stream[:i], stream[i:j], stream[j:])
					if !slices.Equal(whole, tt.whole) || rest != tt.rest {
						t.Fatalf("divided at %d and %d: got %q and %q, want %q and %q", i, j, whole, rest, tt.whole, tt.rest)
					}
				}
			}
		})
	}
}

// FuzzEventFraming: next finds the same ends in a stream that comes as a whole, and in one that comes in two parts.
func FuzzEventFraming(f *testing.F) {
	// An event of two bytes, an empty one, and the beginning of the longest.
	f.Add("application/vnd.kubernetes.protobuf", "", "\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xffx", 3)
	f.Add("application/json", "", "a\nb", 2)
	f.Add("application/json", "gzip", "\x1f\x8b\x01"+memberEnd+"trailer.\x1f", 5) // a member, and the beginning of another
	f.Fuzz(func(t *testing.T, mediaType, encoding, stream string, at int) {
		header := http.Header{"Content-Type": {mediaType}, "Content-Encoding": {encoding}}
		at = min(max(at, 0), len(stream))
		whole, rest := split(t, header, stream)
		again, restAgain := split(t, header, stream[:at], stream[at:])
		expect.Same(t, append(whole, rest), append(again, restAgain))
	})
}

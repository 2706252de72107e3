package kubehttp

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// framing is how one can tell where an event of a watch ends.
type framing int

const (
	// unframed means that nobody can tell where an event ends without decoding it. That is every media type except the two below.
	unframed framing = iota
	// framedByLine is JSON, each event with a newline at its end and none inside
	// (k8s.io/apimachinery, pkg/runtime/serializer/json).
	framedByLine
	// framedByLength is protobuf, each event behind its length (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByMember is gzip. From 1.37 on, kube-apiserver compresses streaming lists, and each flush,
	// which is behind an event, to a gzip member of its own (perFlushGzipWriter in k8s.io/apiserver,
	// pkg/endpoints/handlers). Where one ends can be seen; where others end than kube-apiserver's, or
	// an event inside one, cannot.
	framedByMember
)

// memberEnd is the empty block with which compress/flate ends. The checksum and the length follow,
// and then the member is over. (Compressed bytes are like this by chance once in a terabyte. A
// watch that is cut there ends as one whose connection breaks.)
const (
	memberEnd     = "\x01\x00\x00\xff\xff"
	memberTrailer = 8
)

// EventFraming follows a stream of watch events to know where each ends. The zero value is for a
// stream whose events cannot be told apart.
type EventFraming struct {
	by framing

	inside bool // an event (framedByLine) or a member (framedByMember) has begun

	// seen is how many bytes of the length (framedByLength) or of memberEnd (framedByMember) were seen, and left how
	// many bytes are missing then: of the event, or of the member's trailer.
	length [4]byte
	seen   int
	left   uint32
}

// FramingOf returns the framing of a watch's answer with that header, at its beginning.
func FramingOf(h http.Header) EventFraming {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	encoding := h.Get("Content-Encoding")
	switch {
	case encoding == "gzip":
		return EventFraming{by: framedByMember}
	case err != nil || encoding != "":
		return EventFraming{}
	case mediaType == "application/json":
		return EventFraming{by: framedByLine}
	case mediaType == "application/vnd.kubernetes.protobuf":
		return EventFraming{by: framedByLength}
	}
	return EventFraming{}
}

// Known reports whether one can tell where every event ends.
func (f *EventFraming) Known() bool { return f.by == framedByLine || f.by == framedByLength }

// Compressed reports whether the ends of gzip members can be seen, but not those of events.
func (f *EventFraming) Compressed() bool { return f.by == framedByMember }

// Between reports whether the stream is known to be between two events.
func (f *EventFraming) Between() bool { return f.by != unframed && !f.inside && f.seen == 0 }

// Next takes bytes of p, which is not empty, up to the end of the event under way, or of the gzip
// member. It returns how many, and whether the event or the member is known to be whole with them.
func (f *EventFraming) Next(p []byte) (n int, whole bool) {
	switch f.by {
	case framedByLine:
		end := bytes.IndexByte(p, '\n')
		f.inside = end < 0
		if f.inside {
			return len(p), false
		}
		return end + 1, true
	case framedByLength:
		return f.nextByLength(p)
	case framedByMember:
		n, whole = f.nextByMember(p)
		f.inside = !whole
		return n, whole
	default:
		return len(p), false
	}
}

func (f *EventFraming) nextByLength(p []byte) (n int, whole bool) {
	if f.seen < len(f.length) {
		n = copy(f.length[f.seen:], p)
		f.seen += n
		if f.seen < len(f.length) {
			return n, false
		}
		f.left = binary.BigEndian.Uint32(f.length[:])
	}
	rest := p[n:]
	if uint64(len(rest)) < uint64(f.left) {
		f.left -= uint32(len(rest)) //nolint:gosec // less than left
		return len(p), false
	}
	n += int(f.left)
	f.seen, f.left = 0, 0
	return n, true
}

func (f *EventFraming) nextByMember(p []byte) (n int, whole bool) {
	for i, b := range p {
		switch {
		case f.left > 1:
			f.left--
		case f.left == 1:
			f.left = 0
			return i + 1, true
		case b != memberEnd[f.seen]:
			f.seen = 0
			if b == memberEnd[0] {
				f.seen = 1
			}
		case f.seen == len(memberEnd)-1:
			f.seen, f.left = 0, memberTrailer
		default:
			f.seen++
		}
	}
	return len(p), false
}

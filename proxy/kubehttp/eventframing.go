package kubehttp

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// EventFraming reads a stream of watch events to find the end of each. The zero value is for a stream whose
// events cannot be told apart.
type EventFraming struct {
	by framing

	inside bool // an event (framedByLine) or a member (framedByMember) has begun

	length [4]byte // of the event (framedByLength)
	seen   int     // the number of bytes of the length (framedByLength) or of memberEnd (framedByMember) that came
	left   uint32  // the number of bytes that the event or the member's trailer still lacks after these
}

// framing is the way in which the end of an event is found.
type framing int

const (
	// unframed means that the end is found by decoding only. That is every media type except those below.
	unframed framing = iota
	// framedByLine is JSON, each event with a newline at its end and none inside
	// (k8s.io/apimachinery, pkg/runtime/serializer/json).
	framedByLine
	// framedByLength is protobuf, each event behind its length (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByMember is gzip. From 1.37 on, kube-apiserver compresses streaming lists. Each of its flushes, which
	// come after an event, becomes a gzip member of its own (perFlushGzipWriter in k8s.io/apiserver,
	// pkg/endpoints/handlers). The end of such a member can be found, but not of an event inside it.
	framedByMember
)

const (
	// memberEnd is the empty block with which compress/flate ends. (Compressed bytes are like this by chance once in a
	// terabyte. A watch that is cut there ends as if its connection broke.)
	memberEnd = "\x01\x00\x00\xff\xff"
	// memberTrailer is the length of the checksum and the size that follow. Then the member is over.
	memberTrailer = 8
)

// FramingOf returns the framing of a watch's answer by its header, at the beginning of the answer.
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

// Known reports whether the end of every event can be found.
func (f *EventFraming) Known() bool { return f.by == framedByLine || f.by == framedByLength }

// Compressed reports whether the ends of gzip members can be found, but not those of events.
func (f *EventFraming) Compressed() bool { return f.by == framedByMember }

// Between reports whether the stream is known to be between two events.
func (f *EventFraming) Between() bool { return f.by != unframed && !f.inside && f.seen == 0 }

// Next reads bytes of p, which is not empty, up to the end of the current event or gzip member. It returns their
// number, and reports whether that end was reached.
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

package kubehttp

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// EventFraming reads a stream of watch events to find where each event ends. The zero value is for a stream in which that
// cannot be found.
type EventFraming struct {
	method framing

	// inside reports whether an event (framedByLine) or a gzip member (framedByMember) has begun.
	inside bool

	// length has the length of the event (framedByLength).
	length [4]byte
	// matched is the number of bytes of length (framedByLength) or of memberEnd (framedByMember) that were read.
	matched int
	// missing is the number of bytes of the event, or of the member's trailer, that follow.
	missing uint32
}

// framing says how the end of an event is found.
type framing int

const (
	// unframed means that only a decoder could find the end. It stands for all media types except those below.
	unframed framing = iota
	// framedByLine is JSON. Each event has a newline at its end, and none inside (k8s.io/apimachinery,
	// pkg/runtime/serializer/json).
	framedByLine
	// framedByLength is protobuf. Each event follows its length in four bytes (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByMember is gzip. From 1.37 on, kube-apiserver compresses streaming lists. It flushes after events, and begins
	// a new gzip member after each flush (perFlushGzipWriter in k8s.io/apiserver, pkg/endpoints/handlers). The end of a
	// member can be found, but not the ends of the events inside.
	framedByMember
)

const (
	// memberEnd is the empty block with which compress/flate ends a member. (Other compressed bytes equal it once in a
	// terabyte. A watch that is ended there ends as if its connection broke.)
	memberEnd = "\x01\x00\x00\xff\xff"
	// memberTrailer is the number of bytes of a member after memberEnd: a checksum and the size.
	memberTrailer = 8
)

// FramingOf returns the framing at the beginning of a watch's answer with this header.
func FramingOf(h http.Header) EventFraming {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	encoding := h.Get("Content-Encoding")
	switch {
	case encoding == "gzip":
		return EventFraming{method: framedByMember}
	case err != nil || encoding != "":
		return EventFraming{}
	case mediaType == "application/json":
		return EventFraming{method: framedByLine}
	case mediaType == "application/vnd.kubernetes.protobuf":
		return EventFraming{method: framedByLength}
	}
	return EventFraming{}
}

// Known reports whether the end of every event can be found.
func (f *EventFraming) Known() bool { return f.method == framedByLine || f.method == framedByLength }

// Compressed reports whether the ends of gzip members can be found, but not those of events.
func (f *EventFraming) Compressed() bool { return f.method == framedByMember }

// Between reports whether the stream is known to be between two events.
func (f *EventFraming) Between() bool { return f.method != unframed && !f.inside && f.matched == 0 }

// Next reads bytes of p up to the end of the current event or gzip member. It returns their number, and reports whether
// that end was reached. p must not be empty.
func (f *EventFraming) Next(p []byte) (n int, whole bool) {
	switch f.method {
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

// nextByLength is Next for framedByLength.
func (f *EventFraming) nextByLength(p []byte) (n int, whole bool) {
	if f.matched < len(f.length) {
		n = copy(f.length[f.matched:], p)
		f.matched += n
		if f.matched < len(f.length) {
			return n, false
		}
		f.missing = binary.BigEndian.Uint32(f.length[:])
	}
	rest := p[n:]
	if uint64(len(rest)) < uint64(f.missing) {
		f.missing -= uint32(len(rest)) //nolint:gosec // less than missing
		return len(p), false
	}
	n += int(f.missing)
	f.matched = 0
	f.missing = 0
	return n, true
}

// nextByMember is Next for framedByMember. It searches for memberEnd, and then skips the trailer.
func (f *EventFraming) nextByMember(p []byte) (n int, whole bool) {
	for i, b := range p {
		switch {
		case f.missing > 1: // in the trailer
			f.missing--
		case f.missing == 1:
			f.missing = 0
			return i + 1, true
		case b != memberEnd[f.matched]:
			f.matched = 0
			if b == memberEnd[0] {
				f.matched = 1
			}
		case f.matched == len(memberEnd)-1:
			f.matched = 0
			f.missing = memberTrailer
		default:
			f.matched++
		}
	}
	return len(p), false
}

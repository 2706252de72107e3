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
	// unframed: nobody can, without decoding. That is what is compressed, and every media type
	// except the two below. kube-apiserver compresses streaming lists from 1.37 on, each flush to a
	// gzip member of its own.
	unframed framing = iota
	// framedByLine: JSON, each event with a newline at its end and none inside
	// (k8s.io/apimachinery, pkg/runtime/serializer/json).
	framedByLine
	// framedByLength: protobuf, each event behind its length (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
)

// EventFraming follows a stream of watch events to know where each ends. The zero value is at the
// beginning of a stream of which nobody can tell.
type EventFraming struct {
	by framing

	inside bool // framedByLine: an event has begun

	// framedByLength: what there is of the length, and what the event still lacks.
	length [4]byte
	known  int
	left   uint32
}

// FramingOf returns the framing of a watch's answer with that header, at its beginning.
func FramingOf(h http.Header) EventFraming {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil || h.Get("Content-Encoding") != "":
		return EventFraming{}
	case mediaType == "application/json":
		return EventFraming{by: framedByLine}
	case mediaType == "application/vnd.kubernetes.protobuf":
		return EventFraming{by: framedByLength}
	}
	return EventFraming{}
}

// Known says whether one can tell where an event ends.
func (f *EventFraming) Known() bool { return f.by != unframed }

// Between says whether the stream is known to be between two events.
func (f *EventFraming) Between() bool { return f.Known() && !f.inside && f.known == 0 }

// Next takes bytes of p, which is not empty, up to the end of the event under way. It returns how
// many, and whether the event is known to be whole with them.
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
	default:
		return len(p), false
	}
}

func (f *EventFraming) nextByLength(p []byte) (n int, whole bool) {
	if f.known < len(f.length) {
		n = copy(f.length[f.known:], p)
		f.known += n
		if f.known < len(f.length) {
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
	f.known, f.left = 0, 0
	return n, true
}

package proxy

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// framing is how one can tell where an event of a watch ends.
type framing int

const (
	// unframed: nobody can, without decoding. That is what is compressed, and what is none of the others.
	// kube-apiserver compresses no watch; what is between it and listproxy may, and an aggregated API server.
	unframed framing = iota
	// framedByLine: JSON, each event with a newline at its end and none inside (k8s.io/apimachinery,
	// pkg/runtime/serializer/json).
	framedByLine
	// framedByLength: protobuf, each event behind its length (LengthDelimitedFramer in k8s.io/apimachinery,
	// pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByItem: CBOR, each event one data item that says how long it is (k8s.io/apimachinery,
	// pkg/runtime/serializer/cbor). One that does not say it, of indefinite length, leaves the stream unframed.
	framedByItem
)

// eventFraming follows a stream of watch events to know where one ends. The zero value is at the beginning of a stream
// that is unframed.
type eventFraming struct {
	by framing

	inside bool // framedByLine: an event has begun

	// framedByLength: what there is of the length, and what the event still lacks.
	length [4]byte
	known  int
	left   uint32

	item cborItem // framedByItem
}

// framingOf returns the framing of a watch's answer with that header, at its beginning.
func framingOf(h http.Header) eventFraming {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || h.Get("Content-Encoding") != "" {
		mediaType = ""
	}
	switch mediaType {
	case "application/json":
		return eventFraming{by: framedByLine}
	case "application/vnd.kubernetes.protobuf":
		return eventFraming{by: framedByLength}
	case "application/cbor-seq":
		return eventFraming{by: framedByItem}
	default:
		return eventFraming{by: unframed}
	}
}

// between says whether no event has begun without being whole. Of an unframed stream nobody knows.
func (f *eventFraming) between() bool {
	return f.by != unframed && !f.inside && f.known == 0 && !f.item.begun
}

// next takes bytes of p, which is not empty, up to the end of the event under way. It returns how many, and whether
// the event is known to be whole with them.
func (f *eventFraming) next(p []byte) (n int, whole bool) {
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
	case framedByItem:
		n, whole, ok := f.item.next(p)
		if !ok {
			*f = eventFraming{by: unframed}
			return len(p), false
		}
		return n, whole
	default:
		return len(p), false
	}
}

func (f *eventFraming) nextByLength(p []byte) (n int, whole bool) {
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

package forward

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// framing says how the end of an event is found.
type framing int

const (
	// unframed is every other form. Only a decoder could find the end of an event.
	unframed framing = iota
	// framedByLine is JSON. Each event ends with a newline, and has none inside (k8s.io/apimachinery,
	// pkg/runtime/serializer/json).
	framedByLine
	// framedByLength is protobuf. Each event follows its length in four bytes (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByMember is gzip, in which kube-apiserver compresses streaming lists from 1.37 on. Only the end of a gzip member can
	// be found. A member has whole events only: kube-apiserver flushes between events, and begins a new member after each flush
	// (perFlushGzipWriter in k8s.io/apiserver, pkg/endpoints/handlers).
	framedByMember
)

// endFinder reads a stream of watch events to find where each event ends. The zero value finds no ends.
type endFinder struct {
	framing framing
	// inside reports whether next has read the beginning of an event or gzip member, but not its end. It stays false if ends
	// cannot be found.
	inside bool

	// The state of framedByLength.
	length     [4]byte // the length of the current event
	lengthRead int     // the number of bytes of length that were read
	eventLeft  uint32  // the number of bytes of the event that are still to come

	// The state of framedByMember.
	endMatched  int // the number of bytes of memberEnd that were read in a row
	trailerLeft int // the number of bytes of the trailer that are still to come; 0 before memberEnd
}

const (
	// memberEnd is the empty block with which compress/flate ends a member. By chance the same bytes occur inside a member
	// about once in a terabyte. A watch that is ended there looks to its client like a broken connection.
	memberEnd = "\x01\x00\x00\xff\xff"
	// memberTrailer is the number of bytes of a member after memberEnd: four of a checksum, and four of the size.
	memberTrailer = 8
)

// newEndFinder returns the endFinder for the body of an answer with the header h.
func newEndFinder(h http.Header) endFinder {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	encoding := h.Get("Content-Encoding")
	switch {
	case encoding == "gzip":
		return endFinder{framing: framedByMember}
	case err != nil || encoding != "": // unframed
	case mediaType == "application/json":
		return endFinder{framing: framedByLine}
	case mediaType == "application/vnd.kubernetes.protobuf":
		return endFinder{framing: framedByLength}
	}
	return endFinder{}
}

// next reads p up to the end of the current event or gzip member. It returns the number of bytes read, and whether the end was
// reached. p must not be empty.
func (f *endFinder) next(p []byte) (n int, ended bool) {
	switch f.framing {
	case framedByLine:
		n, ended = nextByLine(p)
	case framedByLength:
		n, ended = f.nextByLength(p)
	case framedByMember:
		n, ended = f.nextByMember(p)
	default:
		return len(p), false
	}
	f.inside = !ended
	return n, ended
}

// nextByLine is next for framedByLine.
func nextByLine(p []byte) (n int, ended bool) {
	if end := bytes.IndexByte(p, '\n'); end >= 0 {
		return end + 1, true
	}
	return len(p), false
}

// nextByLength is next for framedByLength.
func (f *endFinder) nextByLength(p []byte) (n int, ended bool) {
	if f.lengthRead < len(f.length) {
		n = copy(f.length[f.lengthRead:], p)
		f.lengthRead += n
		if f.lengthRead < len(f.length) {
			return n, false
		}
		f.eventLeft = binary.BigEndian.Uint32(f.length[:])
	}
	rest := p[n:]
	if uint64(len(rest)) < uint64(f.eventLeft) {
		f.eventLeft -= uint32(len(rest)) //nolint:gosec // less than eventLeft
		return len(p), false
	}
	n += int(f.eventLeft)
	f.lengthRead = 0 // the length of the next event follows
	return n, true
}

// nextByMember is next for framedByMember. It searches for memberEnd, and then skips the trailer, which has any bytes. So the cases
// of the trailer come first.
func (f *endFinder) nextByMember(p []byte) (n int, ended bool) {
	for i, b := range p {
		switch {
		case f.trailerLeft > 1:
			f.trailerLeft--
		case f.trailerLeft == 1: // b is the last byte of the member
			f.trailerLeft = 0
			return i + 1, true
		case b != memberEnd[f.endMatched]:
			// The first byte of memberEnd occurs nowhere else in it, so only b itself can begin memberEnd again.
			f.endMatched = 0
			if b == memberEnd[0] {
				f.endMatched = 1
			}
		case f.endMatched == len(memberEnd)-1: // b is the last byte of memberEnd
			f.endMatched = 0
			f.trailerLeft = memberTrailer
		default:
			f.endMatched++
		}
	}
	return len(p), false
}

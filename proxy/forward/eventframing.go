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
	// unframed stands for all answers that are none of the following. Only a decoder could find the end.
	unframed framing = iota
	// framedByLine is JSON. Each event ends with a newline, and has none inside (k8s.io/apimachinery,
	// pkg/runtime/serializer/json).
	framedByLine
	// framedByLength is protobuf. Each event follows its length in four bytes (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByMember is gzip, in which kube-apiserver compresses streaming lists from 1.37 on. The end of an event cannot be
	// found, but that of a gzip member, which has whole events only: kube-apiserver flushes between events, and begins a new
	// member after each flush (perFlushGzipWriter in k8s.io/apiserver, pkg/endpoints/handlers).
	framedByMember
)

// endFinder reads a stream of watch events to find where each event ends. The zero value finds no ends.
type endFinder struct {
	framing framing
	// inside reports whether next has read the beginning of an event or gzip member, but not its end. It stays false if ends
	// cannot be found.
	inside bool

	// For framedByLength:
	length     [4]byte // the length of the event
	lengthRead int     // the number of bytes of length that were read

	// For framedByMember: the number of bytes of memberEnd that the last bytes read are equal to.
	endMatched int

	// missing is the number of bytes that are still to be skipped: of the event (framedByLength), or of the member's trailer
	// (framedByMember).
	missing uint32
}

const (
	// memberEnd is the empty block with which compress/flate ends a member. By chance the same bytes occur inside a member
	// about once in a terabyte. A watch that is ended there looks to its client like a broken connection.
	memberEnd = "\x01\x00\x00\xff\xff"
	// memberTrailer is the number of bytes of a member after memberEnd: a checksum and the size.
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
		f.missing = binary.BigEndian.Uint32(f.length[:])
	}
	rest := p[n:]
	if uint64(len(rest)) < uint64(f.missing) {
		f.missing -= uint32(len(rest)) //nolint:gosec // less than missing
		return len(p), false
	}
	n += int(f.missing)
	f.missing, f.lengthRead = 0, 0 // the length of the next event follows
	return n, true
}

// nextByMember is next for framedByMember. It searches for memberEnd, and then skips the trailer.
func (f *endFinder) nextByMember(p []byte) (n int, ended bool) {
	for i, b := range p {
		switch {
		case f.missing > 1: // in the trailer
			f.missing--
		case f.missing == 1: // at its last byte
			f.missing = 0
			return i + 1, true
		case b != memberEnd[f.endMatched]:
			// The first byte of memberEnd occurs nowhere else in it, so only b itself can begin memberEnd again.
			f.endMatched = 0
			if b == memberEnd[0] {
				f.endMatched = 1
			}
		case f.endMatched == len(memberEnd)-1:
			f.endMatched = 0
			f.missing = memberTrailer
		default:
			f.endMatched++
		}
	}
	return len(p), false
}

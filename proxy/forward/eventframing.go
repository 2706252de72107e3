package forward

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// framing says how the end of an event is found in the body of a watch.
type framing int

const (
	// unframed is the zero value: only a decoder could find the ends. It stands for all media types and encodings but those of
	// the three framings below.
	unframed framing = iota
	// framedByLine is JSON. Each event ends with a newline, and has none inside (k8s.io/apimachinery,
	// pkg/runtime/serializer/json).
	framedByLine
	// framedByLength is protobuf. Each event follows its length in four bytes (LengthDelimitedFramer in
	// k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
	framedByLength
	// framedByMember is gzip, in which kube-apiserver compresses streaming lists from 1.37 on. Only the end of a gzip member
	// can be found. A member has whole events only: kube-apiserver flushes between events, and begins a new member after each
	// flush (perFlushGzipWriter in k8s.io/apiserver, pkg/endpoints/handlers).
	framedByMember
)

// endFinder finds where each event ends in the body of a watch, which is given to [endFinder.next] piece by piece. The zero
// value finds no ends.
type endFinder struct {
	framing framing
	// inside reports whether the last call of next has ended within an event or gzip member. For an unframed body, it is false.
	inside bool

	// The state of framedByLength.
	length     [4]byte // the length of the current event, as it is in the body
	lengthRead int     // how many of these four bytes were read
	eventLeft  int64   // the number of bytes of the event that are still to come; 0 while its length is read

	// The state of framedByMember.
	endRead int // how many bytes of the member's end were read: of memberEnd (5 bytes) and of the trailer after it (8 bytes)
}

const (
	// memberEnd is the empty block with which compress/flate ends a member. By chance the same bytes occur inside a member
	// about once in a terabyte. If EndWatches ends a watch at such bytes, its client takes that for a broken connection.
	memberEnd = "\x01\x00\x00\xff\xff"
	// memberTrailer is the number of bytes in the trailer, which follows memberEnd: four of a checksum, and four of the size.
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

// next takes bytes from the beginning of p: up to the end of the current event or gzip member, or all of p if that end is not
// in p. It returns the number of bytes taken, and whether the end was reached. The next call must continue with the bytes that
// were not taken. p must not be empty.
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
		f.eventLeft = int64(binary.BigEndian.Uint32(f.length[:]))
	}
	taken := min(int64(len(p)-n), f.eventLeft)
	n += int(taken)
	f.eventLeft -= taken
	if f.eventLeft > 0 {
		return n, false
	}
	f.lengthRead = 0 // the length of the next event follows
	return n, true
}

// nextByMember is next for framedByMember. A member ends with memberEnd and a trailer of any bytes. If a byte does not match
// memberEnd, the search begins again. Only that byte itself can be a new beginning, since the first byte of memberEnd occurs
// nowhere else in it.
func (f *endFinder) nextByMember(p []byte) (n int, ended bool) {
	for i, b := range p {
		isInTrailer := f.endRead >= len(memberEnd)
		switch {
		case isInTrailer || b == memberEnd[f.endRead]:
			f.endRead++
		case b == memberEnd[0]:
			f.endRead = 1
		default:
			f.endRead = 0
		}
		if f.endRead == len(memberEnd)+memberTrailer {
			f.endRead = 0
			return i + 1, true
		}
	}
	return len(p), false
}

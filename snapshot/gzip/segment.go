package gzip

import (
	"bytes"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/flate"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// segment is a run of neighbouring objects, compressed. It is immutable.
//
// It consists of pieces, each of which refers to what it holds itself and to the piece before it. So a piece
// stays valid as long as the content of these two does not change:
//
//	objects  a b c ◄── d e ◄── f g h ◄── i    four pieces
//
// If e changes, the second and the third piece are compressed again.
type segment struct {
	numbers []uint64 // of the objects that it holds
	events  bool     // says that they are written as events
	pieces  []piece
	// deflated ends on a byte, and is not the end of its stream.
	deflated []byte
	// crc and length are of what was compressed, length modulo 2³², as gzip has it. shift is the crcShift of length.
	crc, shift, length uint32
}

// piece is a part of a segment.
type piece struct {
	numbers     int32  // the index in segment.numbers at which those of its objects end
	bytes       int32  // the index in segment.deflated at which it ends
	crc, length uint32 // of what was compressed
}

const (
	// pieceTarget is the number of bytes that a piece holds on average, before compression; an object of more
	// is a piece of its own. Each piece begins with tables of its own, and must read the bytes that it
	// refers to: with 8 KiB, compressing a list for the first time takes 1.5 times as long, and with
	// 32 KiB, a changed object takes twice as long.
	pieceTarget = 16 << 10
	// pieceReference is the number of last bytes of the piece before it that a piece may refer to. Neighbours are mostly
	// alike, so this compresses as well as deflate's whole window of 32 KiB, and pods better, since references to near
	// bytes are shorter.
	pieceReference = 8 << 10

	// segmentOverhead and pieceOverhead are the bytes that a segment and a piece take in the cache in addition to
	// compressed bytes and numbers.
	segmentOverhead = 192
	pieceOverhead   = 16
)

// format says how objects are written: as the items of a list or as initial events.
type format struct {
	envelope *wire.Envelope
	events   bool
}

// append appends object i of a segment, and the bytes that belong around it.
func (f format) append(dst []byte, i int, o *index.Object) []byte {
	if f.events {
		return f.envelope.AppendEvent(dst, wire.Added, o.Bytes)
	}
	return append(f.envelope.AppendItemHead(dst, i, len(o.Bytes)), o.Bytes...)
}

// separator returns the bytes between two segments.
func (f format) separator() []byte {
	if f.events {
		return nil
	}
	return []byte(f.envelope.Separator())
}

// holds reports whether the segment has these objects in this format.
func (s *segment) holds(f format, objects []*index.Object) bool {
	return s.events == f.events && sameNumbers(s.numbers, objects)
}

// size returns the number of bytes that the segment takes in the cache.
func (s *segment) size() int64 {
	return int64(segmentOverhead + 8*cap(s.numbers) + pieceOverhead*cap(s.pieces) + cap(s.deflated))
}

// sameNumbers reports whether the numbers are those of the objects.
func sameNumbers(numbers []uint64, objects []*index.Object) bool {
	return slices.EqualFunc(numbers, objects, func(number uint64, o *index.Object) bool { return number == o.Number })
}

// numbersOf returns the numbers of the objects of piece i.
func (s *segment) numbersOf(i int) []uint64 {
	begin := int32(0)
	if i > 0 {
		begin = s.pieces[i-1].numbers
	}
	return s.numbers[begin:s.pieces[i].numbers]
}

// bytesOf returns the compressed bytes of piece i.
func (s *segment) bytesOf(i int) []byte {
	begin := int32(0)
	if i > 0 {
		begin = s.pieces[i-1].bytes
	}
	return s.deflated[begin:s.pieces[i].bytes]
}

// pieceLength returns the number of objects in the first piece. It depends on nothing but these objects.
func pieceLength(objects []*index.Object) int {
	size := 0
	for i, o := range objects {
		size += len(o.Bytes)
		if endsPiece(o) || size >= 4*pieceTarget {
			return i + 1
		}
	}
	return len(objects)
}

// endsPiece reports whether a piece ends with this object, as endsSegment does for segments. A segment's end ends a
// piece.
func endsPiece(o *index.Object) bool {
	return uint64(o.KeyHash)*pieceTarget < uint64(len(o.Bytes))<<32
}

// compress returns a segment of the objects. It uses the pieces of an earlier segment again that are still valid;
// earlier may be nil.
func (c *Compressor) compress(f format, objects []*index.Object, earlier *segment) *segment {
	e := c.encoders.Get().(*encoder)
	defer c.encoders.Put(e)
	if earlier != nil && earlier.events != f.events {
		earlier = nil
	}
	s := &segment{events: f.events, numbers: make([]uint64, 0, len(objects)), shift: crcOne}
	e.out.Reset()
	var previous []*index.Object // of the piece before this one
	from := 0                    // the first piece of earlier that may be the next one here
	for rest := objects; len(rest) > 0; {
		own := rest[:pieceLength(rest)]
		n := len(s.pieces)
		var p piece
		if i, found := earlier.find(from, n, previous, own); found {
			p = earlier.pieces[i]
			from = i + 1
			e.out.Write(earlier.bytesOf(i))
		} else {
			plain := e.render(&e.plain, f, own, n == 0)
			e.deflate(plain, e.render(&e.reference, f, previous, n == 1))
			p.crc = crc32.ChecksumIEEE(plain)
			p.length = uint32(len(plain)) // #nosec G115 -- modulo 2³² is meant
		}
		for _, o := range own {
			s.numbers = append(s.numbers, o.Number)
		}
		p.numbers = int32(len(s.numbers)) // #nosec G115 -- bounded by maxSegmentSize
		p.bytes = int32(e.out.Len())      // #nosec G115 -- bounded by maxSegmentSize and an object's size
		s.pieces = append(s.pieces, p)
		shift := crcShift(int64(p.length))
		s.crc = crcJoin(s.crc, p.crc, shift)
		s.shift = crcProduct(s.shift, shift)
		s.length += p.length
		previous = own
		rest = rest[len(own):]
	}
	s.deflated = bytes.Clone(e.out.Bytes())
	c.made.Add(1)
	return s
}

// find looks among the pieces from index from on for one that can be piece n of another segment: it holds the objects
// own, and the piece before it holds the objects previous. The first object of a segment has no comma before it,
// unlike all others. So the first piece of a segment, and the second, which may refer to it, can only be first and
// second again. A nil segment has no pieces.
func (s *segment) find(from, n int, previous, own []*index.Object) (i int, found bool) {
	if s == nil {
		return 0, false
	}
	for i := from; i < len(s.pieces); i++ {
		if sameNumbers(s.numbersOf(i), own) {
			return i, min(i, 2) == min(n, 2) && (i == 0 || sameNumbers(s.numbersOf(i-1), previous))
		}
	}
	return 0, false
}

// encoder has a flate writer and the buffers that compressing needs.
type encoder struct {
	writer           *flate.Writer
	out              bytes.Buffer
	plain, reference []byte
}

func newEncoder() *encoder {
	e := &encoder{}
	w, err := flate.NewWriter(&e.out, gzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	e.writer = w
	return e
}

// render writes objects into buf, a buffer of the encoder. first says that they begin a segment.
func (e *encoder) render(buf *[]byte, f format, objects []*index.Object, first bool) []byte {
	out := (*buf)[:0]
	for i, o := range objects {
		if !first {
			i++ // any place but the first
		}
		out = f.append(out, i, o)
	}
	*buf = out
	return out
}

// deflate compresses plain, which may refer to the end of reference, and appends the result to out. It ends on a byte.
func (e *encoder) deflate(plain, reference []byte) {
	e.writer.ResetDict(&e.out, reference[max(0, len(reference)-pieceReference):])
	// Writing into memory does not fail.
	_, _ = e.writer.Write(plain)
	_ = e.writer.Flush()
}

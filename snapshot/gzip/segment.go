package gzip

import (
	"bytes"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/flate"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// segment is a sequence of neighboring objects, compressed. It is immutable.
//
// A segment consists of pieces. The compressed bytes of a piece refer (as deflate's back-references) only to bytes of the same
// piece and of the piece before it. So a piece stays valid until an object of these two pieces changes:
//
//	piece    0         1       2         3
//	objects  a b c ◄── d e ◄── f g h ◄── i
//
// If e changes, pieces 1 and 2 are compressed again.
//
// If objects are added or removed, a later piece may get another index in the segment's next version: for example, piece 3
// becomes piece 4. It is reused there if both indexes are 2 or more. With the index 0 or 1, the bytes would differ: in a
// list, the first object of piece 0 has no comma before it, and piece 1 may refer to this object.
type segment struct {
	// numbers has the index.Object.Number of each object.
	numbers []uint64
	// events reports whether the objects are written as events, and not as items of a list.
	events bool
	pieces []piece
	// deflated is a deflate stream without its final block. It ends at a byte boundary.
	deflated []byte
	// crc is the checksum (CRC-32) of the uncompressed bytes, and length is their number modulo 2³².
	crc, length uint32
	// shift is the crcShift of the number of uncompressed bytes (not modulo 2³²). crcJoin needs it to join crc to the checksum
	// of the bytes before the segment.
	shift uint32
}

// piece is a part of a segment. It begins where the piece before it ends.
type piece struct {
	// The piece ends before segment.numbers[numbersEnd], and before segment.deflated[deflatedEnd].
	numbersEnd, deflatedEnd int32
	// crc is the checksum of the uncompressed bytes, and length is their number modulo 2³².
	crc, length uint32
}

const (
	// segmentTarget is the mean number of uncompressed bytes in a segment. Smaller segments would cost more lookups in the
	// cache, and compress less well, since no segment can refer to the bytes before it.
	segmentTarget = 128 << 10
	// pieceTarget is the mean number of uncompressed bytes in a piece. With 8 KiB, the first compression of a list would take
	// 1.5 times as long: for each piece, the encoder clears its tables and reads the bytes to which the piece may refer. With
	// 32 KiB, the compression after a change would take twice as long.
	pieceTarget = 16 << 10
	// pieceReference is the number of bytes to which a piece may refer, at the end of the piece before it. Neighbors are
	// mostly alike, so 8 KiB serve as well as deflate's whole window of 32 KiB. Pods even compress better, since references
	// to near bytes are shorter.
	pieceReference = 8 << 10

	// segmentOverhead and pieceOverhead are the bytes of memory of a segment and a piece without compressed bytes and numbers.
	segmentOverhead = 192
	pieceOverhead   = 16
)

// cut splits the objects into their first part and the rest. With segmentTarget as the target, a part is a segment. With
// pieceTarget, a part is a piece.
//
// An object ends a part if KeyHash/2³² < size/target. For example, an object of 8 KiB ends a segment of 128 KiB with the
// probability 1/16, and a piece of 16 KiB with the probability 1/2. This condition has three consequences:
//
//   - A change of an object can only add or remove the end at this object. All other ends stay where they are.
//   - An end comes every target bytes on average, since KeyHash is as good as random.
//   - An object that ends a segment also ends a piece, since pieceTarget is smaller than segmentTarget.
func cut(objects []*index.Object, target uint64) (first, rest []*index.Object) {
	for i, o := range objects {
		if uint64(o.KeyHash)*target < uint64(len(o.Bytes))<<32 { // the condition in integers
			return objects[:i+1], objects[i+1:]
		}
	}
	return objects, nil
}

// format says how objects are written: as the items of a list or as initial events.
type format struct {
	envelope *wire.Envelope
	events   bool
}

// appendObjects appends objects with the bytes that the format puts around each object. objects[0] is object firstIndex of its
// segment: in a list, only object 0 has no comma before it.
func (f format) appendObjects(dst []byte, firstIndex int, objects []*index.Object) []byte {
	for i, o := range objects {
		if f.events {
			dst = f.envelope.AppendEvent(dst, wire.Added, o.Bytes)
		} else {
			dst = append(f.envelope.AppendItemHead(dst, firstIndex+i, len(o.Bytes)), o.Bytes...)
		}
	}
	return dst
}

// size returns the number of bytes of memory that the segment takes in the cache.
func (s *segment) size() int64 {
	return int64(segmentOverhead + 8*cap(s.numbers) + pieceOverhead*cap(s.pieces) + cap(s.deflated))
}

// sameNumbers reports whether the objects have these numbers, in this order.
func sameNumbers(numbers []uint64, objects []*index.Object) bool {
	return slices.EqualFunc(numbers, objects, func(number uint64, o *index.Object) bool { return number == o.Number })
}

// pieceBefore returns the piece before piece i. Before piece 0, it returns the zero piece, which ends at 0.
func (s *segment) pieceBefore(i int) piece {
	if i == 0 {
		return piece{}
	}
	return s.pieces[i-1]
}

// numbersOf returns the numbers of the objects of piece i.
func (s *segment) numbersOf(i int) []uint64 {
	return s.numbers[s.pieceBefore(i).numbersEnd:s.pieces[i].numbersEnd]
}

// bytesOf returns the compressed bytes of piece i.
func (s *segment) bytesOf(i int) []byte {
	return s.deflated[s.pieceBefore(i).deflatedEnd:s.pieces[i].deflatedEnd]
}

// compress returns a segment of the objects. From an earlier segment in the same format, it reuses the pieces that are still
// valid.
func (c *Compressor) compress(f format, objects []*index.Object, earlier *segment) *segment {
	e := c.encoders.Get().(*encoder)
	defer c.encoders.Put(e)
	e.out.Reset()
	s := &segment{events: f.events, numbers: make([]uint64, 0, len(objects)), shift: crcOne}
	var previous []*index.Object // the objects of the piece before the current one
	searchStart := 0             // the index in earlier after the last reused piece
	for len(objects) > 0 {
		current, rest := cut(objects, pieceTarget)
		var p piece
		if i, reusable := earlier.findReusable(searchStart, previous, current, len(s.pieces)); reusable {
			p = earlier.pieces[i]
			e.out.Write(earlier.bytesOf(i))
			searchStart = i + 1
		} else {
			p = e.compressPiece(f, previous, current, len(s.numbers))
		}
		s.appendPiece(p, current, e.out.Len())
		previous = current
		objects = rest
	}
	s.deflated = bytes.Clone(e.out.Bytes())
	c.made.Add(1)
	return s
}

// appendPiece appends p, a piece of these objects. It sets where p ends: after these objects, and at deflatedEnd in
// segment.deflated.
func (s *segment) appendPiece(p piece, objects []*index.Object, deflatedEnd int) {
	for _, o := range objects {
		s.numbers = append(s.numbers, o.Number)
	}
	p.numbersEnd = int32(len(s.numbers)) // #nosec G115 -- far below 2³¹
	p.deflatedEnd = int32(deflatedEnd)   // #nosec G115 -- about segmentTarget, or an object's size
	s.pieces = append(s.pieces, p)
	shift := crcShift(int64(p.length))
	s.crc = crcJoin(s.crc, p.crc, shift)
	s.shift = crcProduct(s.shift, shift)
	s.length += p.length
}

// findReusable searches the pieces from start on for the one with the objects current. It returns the index of this piece, and
// reports whether the piece can be reused in a new segment: as piece newIndex, after a piece with the objects previous.
func (s *segment) findReusable(start int, previous, current []*index.Object, newIndex int) (pieceIndex int, reusable bool) {
	for i := start; i < len(s.pieces); i++ {
		if !sameNumbers(s.numbersOf(i), current) {
			continue
		}
		fitsIndex := i == newIndex || min(i, newIndex) >= 2
		fitsPrevious := i == 0 || sameNumbers(s.numbersOf(i-1), previous)
		return i, fitsIndex && fitsPrevious // No other piece has these objects.
	}
	return 0, false
}

// encoder compresses pieces. It is large, so Compressor.encoders keeps it for later use.
type encoder struct {
	writer *flate.Writer
	// out has the output of writer.
	out bytes.Buffer
	// plain has the uncompressed bytes of a piece, and reference those of the piece before it.
	plain, reference []byte
}

// newEncoder returns an encoder with empty buffers.
func newEncoder() *encoder {
	e := &encoder{}
	w, err := flate.NewWriter(&e.out, gzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	e.writer = w
	return e
}

// compressPiece compresses the objects current, and appends the result to out. The result may refer to the objects previous,
// which come before. current[0] is object firstIndex of its segment. The returned piece has only the checksum and the length.
func (e *encoder) compressPiece(f format, previous, current []*index.Object, firstIndex int) piece {
	e.plain = f.appendObjects(e.plain[:0], firstIndex, current)
	e.reference = f.appendObjects(e.reference[:0], firstIndex-len(previous), previous)
	e.deflate(e.plain, e.reference)
	return piece{crc: crc32.ChecksumIEEE(e.plain), length: uint32(len(e.plain))} // #nosec G115 -- modulo 2³² is meant
}

// deflate compresses plain and appends the result to out. The result may refer to the last pieceReference bytes of reference,
// and ends at a byte boundary.
func (e *encoder) deflate(plain, reference []byte) {
	e.writer.ResetDict(&e.out, reference[max(0, len(reference)-pieceReference):])
	_, _ = e.writer.Write(plain) // writing into memory does not fail
	_ = e.writer.Flush()
}

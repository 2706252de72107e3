package gzip

import (
	"bytes"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/flate"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

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

// role says where the objects of a segment are written.
type role byte

const (
	inList     role = iota
	beginsList      // the first of them lacks the comma that it has elsewhere
	inWatch         // initial events
)

// writing says how objects are written: as the items of a list or as initial events.
type writing struct {
	envelope *wire.Envelope
	events   bool
}

// role returns the role of a segment; first says that it is the first one.
func (w writing) role(first bool) role {
	switch {
	case w.events:
		return inWatch
	case first:
		return beginsList
	}
	return inList
}

// append appends an object, the i-th of a list, and the bytes that belong before it.
func (w writing) append(dst []byte, i int, o *index.Object) []byte {
	if w.events {
		return w.envelope.AppendEvent(dst, wire.Added, o.Bytes)
	}
	return append(w.envelope.AppendItemHead(dst, i, len(o.Bytes)), o.Bytes...)
}

// packed is a segment: a run of neighbours, compressed. It is immutable.
//
// It consists of pieces, each of which refers to what it holds itself and to the piece before it. So a piece
// stays valid as long as the content of these two does not change, and as long as they are, or are not, at the
// beginning of a list:
//
//	objects  a b c ◄── d e ◄── f g h ◄── i    four pieces
//
// If e changes, the second and the third piece are compressed again.
type packed struct {
	numbers []uint64 // of the objects that it holds
	role    role
	pieces  []piece
	// deflated ends on a byte, and is not the end of its stream.
	deflated []byte
	// crc and length are of what was compressed, length modulo 2³², as gzip has it. shift is the crcShift of length.
	crc, shift, length uint32
}

// piece is a part of a segment.
type piece struct {
	numbers     int32  // where those of its objects end in packed.numbers
	bytes       int32  // where it ends in packed.deflated
	crc, length uint32 // of what was compressed
}

func (p *packed) holds(objects []*index.Object, position role) bool {
	return p.role == position && sameNumbers(p.numbers, objects)
}

// size returns the number of bytes that the segment takes in the cache.
func (p *packed) size() int64 {
	return int64(segmentOverhead + 8*cap(p.numbers) + pieceOverhead*cap(p.pieces) + cap(p.deflated))
}

func sameNumbers(numbers []uint64, objects []*index.Object) bool {
	return slices.EqualFunc(numbers, objects, func(number uint64, o *index.Object) bool { return number == o.Number })
}

// numbersOf returns the numbers of a piece's objects, and bytesOf its bytes.
func (p *packed) numbersOf(i int) []uint64 {
	begin := int32(0)
	if i > 0 {
		begin = p.pieces[i-1].numbers
	}
	return p.numbers[begin:p.pieces[i].numbers]
}

func (p *packed) bytesOf(i int) []byte {
	begin := int32(0)
	if i > 0 {
		begin = p.pieces[i-1].bytes
	}
	return p.deflated[begin:p.pieces[i].bytes]
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

// endsPiece reports whether a piece ends with this object, as endsSegment does for segments. A segment's end ends a piece.
func endsPiece(o *index.Object) bool {
	return uint64(o.Mark)*pieceTarget < uint64(len(o.Bytes))<<32
}

// compress returns a segment of the objects. It takes over the pieces that an earlier segment has; before may be nil.
func (c *Compressor) compress(form writing, objects []*index.Object, position role, before *packed) *packed {
	e := c.encoders.Get().(*encoder)
	defer c.encoders.Put(e)
	if before != nil && before.role != position {
		before = nil
	}
	s := &packed{role: position, numbers: make([]uint64, 0, len(objects)), shift: crcOne}
	e.out.Reset()
	compressed := int64(0)
	var previous []*index.Object // of the piece before this one
	from := 0                    // the first piece of before that may be the next one here
	for rest := objects; len(rest) > 0; {
		own := rest[:pieceLength(rest)]
		first, second := position == beginsList && len(s.pieces) == 0, position == beginsList && len(s.pieces) == 1 // of the list
		var p piece
		if at, found := before.find(from, previous, own, second); found {
			p, from = before.pieces[at], at+1
			e.out.Write(before.bytesOf(at))
		} else {
			plain := e.render(&e.plain, form, own, first)
			e.deflate(plain, e.render(&e.reference, form, previous, second))
			p.crc, p.length = crc32.ChecksumIEEE(plain), uint32(len(plain)) // #nosec G115 -- modulo 2³² is meant
			compressed += int64(len(plain))
		}
		for _, o := range own {
			s.numbers = append(s.numbers, o.Number)
		}
		p.numbers, p.bytes = int32(len(s.numbers)), int32(e.out.Len()) // #nosec G115 -- bounded by maxSegmentSize and an object's size
		s.pieces = append(s.pieces, p)
		shift := crcShift(int64(p.length))
		s.crc, s.shift, s.length = crcJoin(s.crc, p.crc, shift), crcProduct(s.shift, shift), s.length+p.length
		previous, rest = own, rest[len(own):]
	}
	s.deflated = bytes.Clone(e.out.Bytes())
	c.made.Add(1)
	c.compressed.Add(compressed)
	return s
}

// find looks for a piece that holds own and follows a piece that holds before, beginning with piece from. A nil segment has
// none. second says that before begins a list: there it lacks the comma that it has elsewhere, to which the piece that
// follows may refer.
func (p *packed) find(from int, before, own []*index.Object, second bool) (at int, found bool) {
	if p == nil {
		return 0, false
	}
	for at := from; at < len(p.pieces); at++ {
		if !sameNumbers(p.numbersOf(at), own) {
			continue
		}
		if at == 0 {
			return at, len(before) == 0
		}
		return at, sameNumbers(p.numbersOf(at-1), before) && second == (p.role == beginsList && at == 1)
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

// render writes objects into buf, a buffer of the encoder. first says that they begin a list.
func (e *encoder) render(buf *[]byte, form writing, objects []*index.Object, first bool) []byte {
	out := (*buf)[:0]
	for i, o := range objects {
		at := i
		if !first {
			at++ // any place but the first
		}
		out = form.append(out, at, o)
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

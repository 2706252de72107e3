package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"sync"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/klauspost/compress/flate"
	"golang.org/x/sync/singleflight"
)

const (
	// gzipLevel is kube-apiserver's (endpoints/handlers/responsewriters).
	gzipLevel = 1
	// segmentTarget is how many bytes a segment holds on average, before compression. Deflate
	// refers at most 32 KiB back, and never across a segment's beginning, which costs about 5% of
	// the compressed size; smaller ones cost more, larger ones are compressed again by more
	// changes.
	segmentTarget = 128 << 10
	// segmentMost is where a segment ends in any case, for want of an end in what it holds.
	segmentMost = 4 * segmentTarget
	// segmentOverhead is what a segment costs in the cache beside its bytes and numbers.
	segmentOverhead = 160
	// segmentExpected is the usual size of a compressed segment, from which the number of the
	// cache's counters is made.
	segmentExpected = 16 << 10
)

// Compressor writes lists with gzip, and compresses an object's bytes once, not once for every
// list: the objects are cut into segments of neighbours, which are compressed alone and kept in a
// bounded cache. Deflate streams that end on a byte can be joined, and CRC-32s be combined, so that
// a list is put together from what is there.
//
// Where a segment ends is decided by the objects in it (see ends), so that one that comes, goes or
// changes leaves all other segments as they are. What is kept is found by what it holds: by the
// numbers of its objects, of which no two versions of an object, and no two objects, have the same.
//
// It is safe for concurrent use. Those who want the same segment at the same time wait for one who
// compresses it.
type Compressor struct {
	flights  singleflight.Group
	encoders sync.Pool

	// mu is held for reading around every use of segments and for writing around its end:
	// ristretto's Close races with its Get and Set.
	mu       sync.RWMutex
	segments *ristretto.Cache[uint64, *packed] // nil when nothing is kept
}

// NewCompressor returns a Compressor that keeps at most size bytes of segments; with 0 it keeps
// none.
func NewCompressor(size int64) (*Compressor, error) {
	c := &Compressor{encoders: sync.Pool{New: func() any { return newEncoder() }}}
	if size <= 0 {
		return c, nil
	}
	var err error
	c.segments, err = ristretto.NewCache(&ristretto.Config[uint64, *packed]{
		NumCounters:        max(1000, 10*size/segmentExpected), // ten for each entry, as its documentation advises
		MaxCost:            size,
		BufferItems:        64, // as its documentation advises
		IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a cache of %d bytes for compressed segments: %w", size, err)
	}
	return c, nil
}

// Close lets go of all segments. A Compressor that is closed still writes, and keeps nothing.
func (c *Compressor) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.segments != nil {
		c.segments.Close()
		c.segments = nil
	}
}

// Write writes a list: the head, the objects with what the frame puts before each, the tail. It
// ends at the first error of w.
func (c *Compressor) Write(w io.Writer, frame *Frame, head []byte, objects []*Object, tail []byte) error {
	s := joined{w: w}
	s.write(gzipHeader)
	s.stored(head, false)
	for first := true; len(objects) > 0 && s.err == nil; first = false {
		n := segmentLength(objects)
		s.segment(c.segment(frame, objects[:n], first))
		objects = objects[n:]
	}
	s.stored(tail, true)
	s.write(s.trailer())
	return s.err
}

// packed is a segment: a run of neighbours, compressed. It is immutable.
type packed struct {
	// numbers of the objects that it holds, and whether a list begins with it.
	numbers []uint64
	first   bool
	// deflated ends on a byte, and is not the end of its stream.
	deflated []byte
	// crc, shift and length are of what was compressed.
	crc, shift uint32
	length     uint32 // modulo 2³², as gzip has it
}

func (s *packed) holds(objects []*Object, first bool) bool {
	return s.first == first && slices.EqualFunc(s.numbers, objects, func(number uint64, o *Object) bool { return number == o.number })
}

// segmentLength is how many of the objects make the first segment. It depends on nothing but these.
func segmentLength(objects []*Object) int {
	size := 0
	for i, o := range objects {
		size += len(o.Bytes)
		if o.endsSegment() || size >= segmentMost {
			return i + 1
		}
	}
	return len(objects)
}

// endsSegment says whether a segment ends with this object. Objects do as often as makes segments
// of about segmentTarget bytes.
func (o *Object) endsSegment() bool {
	return uint64(o.mark)*segmentTarget < uint64(len(o.Bytes))<<32
}

// segment returns the objects compressed, from the cache if it is there.
func (c *Compressor) segment(frame *Frame, objects []*Object, first bool) *packed {
	key, kept := segmentKey(objects, first)
	if !kept {
		return c.compress(frame, objects, first)
	}
	if s := c.find(key); s != nil && s.holds(objects, first) {
		return s
	}
	made, _, _ := c.flights.Do(strconv.FormatUint(key, 36), func() (any, error) {
		s := c.compress(frame, objects, first)
		c.keep(key, s)
		return s, nil
	})
	if s, ok := made.(*packed); ok && s.holds(objects, first) {
		return s
	}
	return c.compress(frame, objects, first) // another one with the same key was on its way
}

// segmentKey is made of what a segment holds. Two may share one, so what is found has to be
// compared. Objects without a number are not kept.
func segmentKey(objects []*Object, first bool) (key uint64, kept bool) {
	key = uint64(len(objects))
	if first {
		key = ^key
	}
	for _, o := range objects {
		if o.number == 0 {
			return 0, false
		}
		high, low := bits.Mul64(key^0x9e3779b97f4a7c15, o.number^0xbf58476d1ce4e5b9)
		key = bits.RotateLeft64(key, 23) ^ high ^ low
	}
	return key, true
}

func (c *Compressor) find(key uint64) *packed {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments == nil {
		return nil
	}
	s, _ := c.segments.Get(key)
	return s
}

func (c *Compressor) keep(key uint64, s *packed) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments != nil {
		// It may come to nothing: the cache has room for what is asked for often.
		_ = c.segments.Set(key, s, int64(segmentOverhead+8*len(s.numbers)+cap(s.deflated)))
	}
}

// encoder is what compressing needs.
type encoder struct {
	deflate *flate.Writer
	out     bytes.Buffer
	plain   []byte
}

func newEncoder() *encoder {
	e := &encoder{}
	w, err := flate.NewWriter(&e.out, gzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	e.deflate = w
	return e
}

func (c *Compressor) compress(frame *Frame, objects []*Object, first bool) *packed {
	e := c.encoders.Get().(*encoder)
	defer c.encoders.Put(e)
	e.out.Reset()
	e.deflate.Reset(&e.out)
	s := &packed{numbers: make([]uint64, len(objects)), first: first}
	length := int64(0)
	write := func(p []byte) {
		_, _ = e.deflate.Write(p) // into memory
		s.crc = crc32.Update(s.crc, crc32.IEEETable, p)
		length += int64(len(p))
	}
	for i, o := range objects {
		s.numbers[i] = o.number
		at := i
		if !first {
			at++ // not the first of the list
		}
		e.plain = frame.AppendItemHead(e.plain[:0], at, len(o.Bytes))
		write(e.plain)
		write(o.Bytes)
	}
	_ = e.deflate.Flush()
	s.deflated = bytes.Clone(e.out.Bytes())
	s.shift, s.length = crcShift(length), uint32(length) // #nosec G115 -- modulo 2³² is meant
	return s
}

// gzipHeader is that of a member without a name or a time (RFC 1952).
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// maxStored is how much one stored block of deflate holds.
const maxStored = 1<<16 - 1

// joined is a gzip member that is put together.
type joined struct {
	w      io.Writer
	err    error
	crc    uint32
	length uint32
}

func (j *joined) write(p []byte) {
	if j.err == nil {
		_, j.err = j.w.Write(p)
	}
}

func (j *joined) segment(s *packed) {
	j.write(s.deflated)
	j.crc, j.length = crcJoin(j.crc, s.crc, s.shift), j.length+s.length
}

// stored writes p as it is, which is the shortest way for a few bytes. Last ends the stream.
func (j *joined) stored(p []byte, last bool) {
	j.crc, j.length = crc32.Update(j.crc, crc32.IEEETable, p), j.length+uint32(len(p)) // #nosec G115 -- modulo 2³² is meant
	for {
		block := p[:min(len(p), maxStored)]
		p = p[len(block):]
		head := [5]byte{}
		if last && len(p) == 0 {
			head[0] = 1
		}
		binary.LittleEndian.PutUint16(head[1:], uint16(len(block)))  // #nosec G115 -- at most maxStored
		binary.LittleEndian.PutUint16(head[3:], ^uint16(len(block))) // #nosec G115 -- as above
		j.write(head[:])
		j.write(block)
		if len(p) == 0 {
			return
		}
	}
}

func (j *joined) trailer() []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, j.crc), j.length)
}

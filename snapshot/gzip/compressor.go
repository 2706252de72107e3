package gzip

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// gzipLevel is the level that kube-apiserver uses (endpoints/handlers/responsewriters).
	gzipLevel = 1
	// segmentTarget is the number of bytes that a segment holds on average, before compression. Each costs a
	// lookup in the cache when it is written, and its beginning cannot refer to the bytes before it.
	segmentTarget = 128 << 10
	// maxSegmentSize is the size at which a segment ends in any case.
	maxSegmentSize = 4 * segmentTarget
	// usualCompressedSize is the usual size of a compressed segment. The number of the cache's counters is
	// computed from it.
	usualCompressedSize = 16 << 10
)

// Compressor writes lists with gzip, and compresses an object's bytes once, not once for every
// list. The objects are cut into segments of neighbours. Each segment is compressed alone and kept in
// a bounded cache. A segment is cut into pieces (see packed), and after a change only the pieces that
// changed are compressed again. A list is put together from compressed segments: Deflate streams that
// end on a byte can be joined, and CRC-32s can be combined.
//
// Only the objects in a segment decide where it ends (see endsSegment). So when an object comes,
// goes or changes, all other segments stay as they are. The cache has one version of a segment,
// found by where it begins and ends. Its content is compared by the numbers of its objects: each
// version of each object has a number of its own.
//
// It is safe for concurrent use. If several requests need the same segment at the same time, one
// compresses it and the others wait.
type Compressor struct {
	flights  singleflight.Group
	encoders sync.Pool

	// See CompressorStats.
	found, made atomic.Uint64
	compressed  atomic.Int64

	// mu is held for reading around every use of segments and for writing around its end:
	// ristretto's Close races with its Get and Set.
	mu       sync.RWMutex
	segments *ristretto.Cache[uint64, *packed] // nil when nothing is kept
}

// NewCompressor returns a Compressor that keeps about size bytes of segments at most; with 0 it
// keeps none.
func NewCompressor(size int64) (*Compressor, error) {
	c := &Compressor{encoders: sync.Pool{New: func() any { return newEncoder() }}}
	if size <= 0 {
		return c, nil
	}
	var err error
	c.segments, err = ristretto.NewCache(&ristretto.Config[uint64, *packed]{
		NumCounters:        max(1000, 10*size/usualCompressedSize), // ten for each entry, as its documentation advises
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

// Write writes a list: the head, the objects with what the envelope puts before each, the tail. It
// ends at the first error of w.
func (c *Compressor) Write(w io.Writer, envelope *wire.Envelope, head []byte, objects []*index.Object, tail []byte) error {
	_, _, err := c.write(w, writing{envelope: envelope}, head, objects, tail, func() bool { return true })
	return err
}

// WriteEvents writes the beginning of a watch: the objects as events, and the tail. It calls mayGoOn right before it writes
// a segment or the tail, and ends the gzip member if that returns false. It returns the number of objects that were
// written, and the number of bytes before compression (modulo 2³²).
func (c *Compressor) WriteEvents(
	w io.Writer, envelope *wire.Envelope, objects []*index.Object, tail []byte, mayGoOn func() bool,
) (written int, plain uint32, err error) {
	return c.write(w, writing{envelope: envelope, events: true}, nil, objects, tail, mayGoOn)
}

func (c *Compressor) write(
	w io.Writer, form writing, head []byte, objects []*index.Object, tail []byte, mayGoOn func() bool,
) (written int, plain uint32, err error) {
	s := joined{w: w}
	s.write(gzipHeader)
	s.stored(head, false)
	for written < len(objects) && s.err == nil {
		rest := objects[written:]
		n := segmentLength(rest)
		segment := c.segment(form, rest[:n], form.role(written == 0))
		if !mayGoOn() {
			break
		}
		s.segment(segment)
		written += n
	}
	if written < len(objects) || !mayGoOn() {
		tail = nil
	}
	s.stored(tail, false)
	s.end()
	return written, s.length, s.err
}

// segmentLength returns the number of objects in the first segment. It depends on nothing but these objects.
func segmentLength(objects []*index.Object) int {
	size := 0
	for i, o := range objects {
		size += len(o.Bytes)
		if endsSegment(o) || size >= maxSegmentSize {
			return i + 1
		}
	}
	return len(objects)
}

// endsSegment reports whether a segment ends with this object. That is decided by its Mark, a hash, and is as likely as
// the object is large, so that segments have about segmentTarget bytes.
func endsSegment(o *index.Object) bool {
	return uint64(o.Mark)*segmentTarget < uint64(len(o.Bytes))<<32
}

// segment returns the compressed segment of the objects, from the cache if it is there.
func (c *Compressor) segment(form writing, objects []*index.Object, position role) *packed {
	if slices.ContainsFunc(objects, func(o *index.Object) bool { return o.Number == 0 }) {
		return c.compress(form, objects, position, nil)
	}
	place := placeOf(objects, position)
	before := c.find(place)
	if before != nil && before.holds(objects, position) {
		c.found.Add(1)
		return before
	}
	flight := strconv.FormatUint(place, 36) + strconv.FormatUint(contentOf(objects), 36)
	made, _, _ := c.flights.Do(flight, func() (any, error) {
		s := c.compress(form, objects, position, before)
		c.keep(place, s)
		return s, nil
	})
	if s, ok := made.(*packed); ok && s.holds(objects, position) {
		return s
	}
	return c.compress(form, objects, position, before) // another one of the same name was on its way
}

// placeOf returns the cache's key of a segment, made of its first and last object, the collection and its role. Two
// segments may have the same, so what is found there must be compared.
func placeOf(objects []*index.Object, position role) uint64 {
	begin, end := objects[0], objects[len(objects)-1]
	place := index.Mix(uint64(begin.Mark)<<32|uint64(end.Mark), begin.Number>>index.ObjectNumberBits)
	return index.Mix(place, uint64(position))
}

// contentOf returns a hash of the versions of objects in a segment.
func contentOf(objects []*index.Object) uint64 {
	content := uint64(len(objects))
	for _, o := range objects {
		content = index.Mix(content, o.Number)
	}
	return content
}

func (c *Compressor) find(place uint64) *packed {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments == nil {
		return nil
	}
	s, _ := c.segments.Get(place)
	return s
}

func (c *Compressor) keep(place uint64, s *packed) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments != nil {
		// The cache may drop it at once: it keeps what is asked for often.
		_ = c.segments.Set(place, s, s.size())
	}
}

// CompressorStats counts the work of a Compressor since it was made.
type CompressorStats struct {
	// Found is the number of segments that were found in the cache, Made the number of those that were compressed.
	Found, Made uint64
	// Compressed is the number of bytes that were compressed, counted before compression.
	Compressed int64
	// Kept is the number of bytes that the cache holds by its own count.
	Kept int64
}

// Stats returns the counters. They are read one after the other.
func (c *Compressor) Stats() CompressorStats {
	s := CompressorStats{Found: c.found.Load(), Made: c.made.Load(), Compressed: c.compressed.Load()}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments != nil {
		s.Kept = c.segments.MaxCost() - c.segments.RemainingCost()
	}
	return s
}

// gzipHeader is the header of a member without a name or a time (RFC 1952).
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// maxStored is the number of bytes that a stored block of deflate may hold.
const maxStored = 1<<16 - 1

// joined writes a gzip member that is joined from segments and stored blocks.
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

// stored writes p in stored blocks, uncompressed, which is shortest for a few bytes. With last, the deflate stream ends.
func (j *joined) stored(p []byte, last bool) {
	j.crc, j.length = crc32.Update(j.crc, crc32.IEEETable, p), j.length+uint32(len(p)) // #nosec G115 -- modulo 2³² is meant
	for {
		block := p[:min(len(p), maxStored)]
		p = p[len(block):]
		head := storedHead(len(block), last && len(p) == 0)
		j.write(head[:])
		j.write(block)
		if len(p) == 0 {
			return
		}
	}
}

// storedHead returns the head of a stored block of n bytes.
func storedHead(n int, last bool) (head [5]byte) {
	if last {
		head[0] = 1
	}
	binary.LittleEndian.PutUint16(head[1:], uint16(n))  // #nosec G115 -- at most maxStored
	binary.LittleEndian.PutUint16(head[3:], ^uint16(n)) // #nosec G115 -- as above
	return head
}

// end ends the member. At an empty block, readers hand out all that came before. At the last block, Go's reader first
// reads on. So without the first of the two, it would hand out the end of a watch's member only with the next member.
func (j *joined) end() {
	j.stored(nil, false)
	j.stored(nil, true)
	j.write(j.trailer())
}

// WriteStored writes a gzip member that holds the parts uncompressed, for bytes that are written
// only once. It copies none of them.
func WriteStored(w io.Writer, parts iter.Seq[[]byte]) error {
	s := joined{w: w}
	s.write(gzipHeader)
	for part := range parts {
		s.stored(part, false)
	}
	s.end()
	return s.err
}

func (j *joined) trailer() []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, j.crc), j.length)
}

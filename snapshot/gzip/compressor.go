package gzip

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Compressor writes lists with gzip, and compresses an object's bytes once, not once for every list. The objects are
// cut into segments of neighbours. Each segment is compressed alone and kept in a bounded cache. A segment is cut
// into pieces (see segment), and after a change only the pieces that changed are compressed again. A list is put
// together from compressed segments: Deflate streams that end on a byte can be joined, and CRC-32s can be combined.
//
// Only the objects in a segment decide where it ends (see endsSegment). So when an object comes, goes or changes, all
// other segments stay as they are. The cache has one version of a segment, found by its first and last object (see
// placeOf). Its content is compared by the numbers of its objects: each version of each object has a number of its
// own.
//
// An example: of the objects a to f, c and f end segments. A list is [a b c] , [d e f], where the comma between the
// segments is not compressed. When b changes, [a b' c] is found in the place of [a b c], and its pieces without b are
// used again.
//
// It is safe for concurrent use. If several requests need the same segment at the same time, one compresses it and the
// others wait.
type Compressor struct {
	flights  singleflight.Group
	encoders sync.Pool

	// See CompressorStats.
	found, made atomic.Uint64

	// mu is held for reading around every use of segments and for writing around its end:
	// ristretto's Close races with its Get and Set.
	mu       sync.RWMutex
	segments *ristretto.Cache[uint64, *segment] // nil when nothing is kept
}

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

// NewCompressor returns a Compressor that keeps about size bytes of segments at most; with 0 it
// keeps none.
func NewCompressor(size int64) (*Compressor, error) {
	c := &Compressor{encoders: sync.Pool{New: func() any { return newEncoder() }}}
	if size <= 0 {
		return c, nil
	}
	var err error
	c.segments, err = ristretto.NewCache(&ristretto.Config[uint64, *segment]{
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

// Write writes a list: the head, the objects with what the envelope puts around each, the tail. It ends at the first
// error of w.
func (c *Compressor) Write(w io.Writer, envelope *wire.Envelope, head []byte, objects []*index.Object, tail []byte) error {
	_, _, err := c.write(w, format{envelope: envelope}, head, objects, tail, func() bool { return true })
	return err
}

// WriteEvents writes the beginning of a watch: the objects as events, and the tail. It calls mayGoOn right before it
// writes a segment or the tail, and ends the gzip member if that returns false. It returns the number of objects that
// were written, and the number of bytes before compression (modulo 2³²).
func (c *Compressor) WriteEvents(
	w io.Writer, envelope *wire.Envelope, objects []*index.Object, tail []byte, mayGoOn func() bool,
) (written int, plain uint32, err error) {
	return c.write(w, format{envelope: envelope, events: true}, nil, objects, tail, mayGoOn)
}

// write writes a list or initial events, as [Compressor.Write] and [Compressor.WriteEvents] say.
func (c *Compressor) write(
	w io.Writer, f format, head []byte, objects []*index.Object, tail []byte, mayGoOn func() bool,
) (written int, plain uint32, err error) {
	m := member{w: w}
	m.write(gzipHeader)
	m.writeStored(head, false)
	for written < len(objects) && m.err == nil {
		rest := objects[written:]
		n := segmentLength(rest)
		s := c.segmentOf(f, rest[:n])
		if !mayGoOn() {
			break
		}
		if written > 0 {
			m.writeStored(f.separator(), false)
		}
		m.writeSegment(s)
		written += n
	}
	if written < len(objects) || !mayGoOn() {
		tail = nil
	}
	m.writeStored(tail, false)
	m.end()
	return written, m.length, m.err
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

// endsSegment reports whether a segment ends with this object. That is decided by the hash of its key, and is as
// likely as the object is large, so that segments have about segmentTarget bytes.
func endsSegment(o *index.Object) bool {
	return uint64(o.KeyHash)*segmentTarget < uint64(len(o.Bytes))<<32
}

// segmentOf returns the compressed segment of the objects, from the cache if it is there.
func (c *Compressor) segmentOf(f format, objects []*index.Object) *segment {
	place := placeOf(f, objects)
	earlier := c.find(place)
	if earlier != nil && earlier.holds(f, objects) {
		c.found.Add(1)
		return earlier
	}
	flight := strconv.FormatUint(place, 36) + strconv.FormatUint(contentOf(objects), 36)
	made, _, _ := c.flights.Do(flight, func() (any, error) {
		s := c.compress(f, objects, earlier)
		c.keep(place, s)
		return s, nil
	})
	if s, ok := made.(*segment); ok && s.holds(f, objects) {
		return s
	}
	return c.compress(f, objects, earlier) // another one of the same name was on its way
}

// placeOf returns the cache's key of a segment, made of its first and last object, the collection and the format. Two
// segments may have the same, so what is found there must be compared.
func placeOf(f format, objects []*index.Object) uint64 {
	first, last := objects[0], objects[len(objects)-1]
	place := mix(uint64(first.KeyHash)<<32|uint64(last.KeyHash), first.Number>>index.ObjectNumberBits)
	if f.events {
		place = mix(place, 1)
	}
	return place
}

// contentOf returns a hash of the versions of objects in a segment.
func contentOf(objects []*index.Object) uint64 {
	content := uint64(len(objects))
	for _, o := range objects {
		content = mix(content, o.Number)
	}
	return content
}

// mix returns a hash of two hashes.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	return bits.RotateLeft64(a, 23) ^ high ^ low
}

// find returns the segment that the cache has in a place, or nil.
func (c *Compressor) find(place uint64) *segment {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments == nil {
		return nil
	}
	s, _ := c.segments.Get(place)
	return s
}

// keep stores a segment in the cache under a key from placeOf. The cache may drop it at once: it prefers segments that
// are often asked for.
func (c *Compressor) keep(place uint64, s *segment) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.segments != nil {
		_ = c.segments.Set(place, s, s.size())
	}
}

// CompressorStats counts the work of a Compressor since it was made.
type CompressorStats struct {
	// Found is the number of segments that were found in the cache, Made the number of those that were compressed.
	Found, Made uint64
	// Kept is the number of bytes that the cache holds by its own count.
	Kept int64
}

// Stats returns the counters.
func (c *Compressor) Stats() CompressorStats {
	s := CompressorStats{Found: c.found.Load(), Made: c.made.Load()}
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

// member writes a gzip member that is put together from segments and stored blocks.
type member struct {
	w io.Writer
	// err is the first error of w. Nothing is written after it.
	err error
	// crc and length are those of what the member holds; length is modulo 2³², as gzip has it.
	crc    uint32
	length uint32
}

// write writes bytes of the compressed form.
func (m *member) write(p []byte) {
	if m.err == nil {
		_, m.err = m.w.Write(p)
	}
}

// writeSegment writes a segment.
func (m *member) writeSegment(s *segment) {
	m.write(s.deflated)
	m.crc = crcJoin(m.crc, s.crc, s.shift)
	m.length += s.length
}

// writeStored writes p in stored blocks, uncompressed, which is shortest for a few bytes. With last, the deflate
// stream ends.
func (m *member) writeStored(p []byte, last bool) {
	m.crc = crc32.Update(m.crc, crc32.IEEETable, p)
	m.length += uint32(len(p)) // #nosec G115 -- modulo 2³² is meant
	for {
		block := p[:min(len(p), maxStored)]
		p = p[len(block):]
		head := storedHead(len(block), last && len(p) == 0)
		m.write(head[:])
		m.write(block)
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
func (m *member) end() {
	m.writeStored(nil, false)
	m.writeStored(nil, true)
	m.write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, m.crc), m.length))
}

// WriteStored writes a gzip member that holds the parts uncompressed, for bytes that are written
// only once. It copies none of them.
func WriteStored(w io.Writer, parts iter.Seq[[]byte]) error {
	m := member{w: w}
	m.write(gzipHeader)
	for part := range parts {
		m.writeStored(part, false)
	}
	m.end()
	return m.err
}

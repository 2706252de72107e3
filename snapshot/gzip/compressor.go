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
	// gzipLevel is kube-apiserver's (endpoints/handlers/responsewriters).
	gzipLevel = 1
	// segmentTarget is the number of bytes that a segment holds on average, before compression. Each costs a
	// lookup in the cache when it is written, and its beginning cannot refer to the bytes before it.
	segmentTarget = 128 << 10
	// segmentMost is the size at which a segment ends even if no object in it ends it.
	segmentMost = 4 * segmentTarget
	// segmentExpected is the usual size of a compressed segment. The number of the cache's counters is
	// computed from it.
	segmentExpected = 16 << 10
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

// Write writes a list: the head, the objects with what the envelope puts before each, the tail. It
// ends at the first error of w.
func (c *Compressor) Write(w io.Writer, envelope *wire.Envelope, head []byte, objects []*index.Object, tail []byte) error {
	_, _, err := c.write(w, writing{envelope: envelope}, head, objects, tail, func() bool { return true })
	return err
}

// WriteEvents writes what a watch begins with: the objects as events, and the tail. It calls may
// right before it writes a segment or the tail, and ends the member if it may not go on. It returns how
// many objects it has written, and how many bytes before compression (modulo 2³²).
func (c *Compressor) WriteEvents(
	w io.Writer, envelope *wire.Envelope, objects []*index.Object, tail []byte, may func() bool,
) (written int, plain uint32, err error) {
	return c.write(w, writing{envelope: envelope, events: true}, nil, objects, tail, may)
}

func (c *Compressor) write(
	w io.Writer, as writing, head []byte, objects []*index.Object, tail []byte, may func() bool,
) (written int, plain uint32, err error) {
	s := joined{w: w}
	s.write(gzipHeader)
	s.stored(head, false)
	for written < len(objects) && s.err == nil {
		rest := objects[written:]
		n := segmentLength(rest)
		segment := c.segment(as, rest[:n], as.role(written == 0))
		if !may() {
			break
		}
		s.segment(segment)
		written += n
	}
	if written < len(objects) || !may() {
		tail = nil
	}
	s.stored(tail, false)
	s.end()
	return written, s.length, s.err
}

// segmentLength is how many of the objects make the first segment. It depends on nothing but these.
func segmentLength(objects []*index.Object) int {
	size := 0
	for i, o := range objects {
		size += len(o.Bytes)
		if endsSegment(o) || size >= segmentMost {
			return i + 1
		}
	}
	return len(objects)
}

// endsSegment reports whether a segment ends with this object. Objects do as often as makes segments
// of about segmentTarget bytes.
func endsSegment(o *index.Object) bool {
	return uint64(o.Mark)*segmentTarget < uint64(len(o.Bytes))<<32
}

// segment returns the objects compressed, from the cache as far as they are there.
func (c *Compressor) segment(as writing, objects []*index.Object, is role) *packed {
	if slices.ContainsFunc(objects, func(o *index.Object) bool { return o.Number == 0 }) {
		return c.compress(as, objects, is, nil)
	}
	place := placeOf(objects, is)
	before := c.find(place)
	if before != nil && before.isOf(objects, is) {
		c.found.Add(1)
		return before
	}
	flight := strconv.FormatUint(place, 36) + strconv.FormatUint(contentOf(objects), 36)
	made, _, _ := c.flights.Do(flight, func() (any, error) {
		s := c.compress(as, objects, is, before)
		c.keep(place, s)
		return s, nil
	})
	if s, ok := made.(*packed); ok && s.isOf(objects, is) {
		return s
	}
	return c.compress(as, objects, is, before) // another one of the same name was on its way
}

// placeOf is where a segment is kept: by the keys that it begins and ends with, the collection, and
// its role. Two may share a place, so what is found has to be compared.
func placeOf(objects []*index.Object, is role) uint64 {
	begin, end := objects[0], objects[len(objects)-1]
	place := index.Mix(uint64(begin.Mark)<<32|uint64(end.Mark), begin.Number>>index.ObjectNumberBits)
	return index.Mix(place, uint64(is))
}

// contentOf is made of what a segment holds. Two may have the same.
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

// CompressorStats are what a Compressor did since it was made.
type CompressorStats struct {
	// Found is the number of segments that were kept when they were wanted, and Made how many were not.
	Found, Made uint64
	// Compressed is the number of bytes that were compressed, as they were before.
	Compressed int64
	// Kept is the number of bytes that the cache holds by its own account.
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
		head := storedHead(len(block), last && len(p) == 0)
		j.write(head[:])
		j.write(block)
		if len(p) == 0 {
			return
		}
	}
}

// storedHead is what comes before a stored block of n bytes.
func storedHead(n int, last bool) (head [5]byte) {
	if last {
		head[0] = 1
	}
	binary.LittleEndian.PutUint16(head[1:], uint16(n))  // #nosec G115 -- at most maxStored
	binary.LittleEndian.PutUint16(head[3:], ^uint16(n)) // #nosec G115 -- as above
	return head
}

// end ends the member. At an empty block, readers hand out all that came before it. Without the
// first one, Go's reader would hand out the end of a watch's member only with the next member: it
// reads on at the last block.
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

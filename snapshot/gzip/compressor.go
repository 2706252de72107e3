package gzip

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Compressor compresses lists and the initial events of watches with gzip: each object once, not once for every answer.
//
// The objects are split into segments of neighbors. Each segment is compressed alone and kept in a bounded cache. An answer
// is joined from compressed segments. This works because deflate streams that end at a byte boundary can be joined, and
// CRC-32s can be combined.
//
// Only the key and the size of an object decide whether it ends a segment (see cut). So if an object changes, the other
// segments mostly stay the same. The cache has one version of each segment, by a hash of the segment's first and last object
// (see cacheKey). Each version of an object has a number. A segment has the numbers of its objects, which show whether the
// segment is current.
//
// For example, the objects are a to f, and c and f end segments. The list is [a b c] , [d e f] with an uncompressed comma
// between the segments. Then b changes to b'. The segment [a b' c] has the same first and last object as [a b c], so [a b c] is
// found in the cache. Only the pieces around b are compressed again (see segment).
//
// A Compressor is safe for concurrent use. If several requests need the same segment at the same time, one request compresses
// the segment, and the other requests wait for it.
type Compressor struct {
	// mu guards segments. It is held for reading during each use of the cache, since ristretto's Close races with Get and Set.
	mu sync.RWMutex
	// segments is the cache. It is nil if its size is 0, and after Close: a nil Cache finds no segments and keeps none.
	segments *ristretto.Cache[uint64, *segment]
	// flights makes concurrent requests for the same segment compress it once.
	flights singleflight.Group
	// encoders has values of type *encoder.
	encoders sync.Pool
	// found and made count segments for CompressorStats: found in the cache, and compressed.
	found, made atomic.Uint64
}

const (
	// gzipLevel is the level that kube-apiserver uses (endpoints/handlers/responsewriters). gzipHeader (member.go) names it.
	gzipLevel = 1
	// usualCompressedSize is the usual size of a compressed segment in bytes. The number of the cache's counters follows from
	// it.
	usualCompressedSize = 16 << 10
)

// NewCompressor returns a Compressor that keeps up to about size bytes of segments, or none if size is 0. The caller must
// close it.
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

// Close drops all segments. A closed Compressor still writes, but keeps nothing.
func (c *Compressor) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.segments.Close()
	c.segments = nil
}

// Write writes a list: the head, the objects with the bytes that the envelope puts around each, and the tail. It returns the
// first error of w.
func (c *Compressor) Write(w io.Writer, envelope *wire.Envelope, head []byte, objects []*index.Object, tail []byte) error {
	always := func() bool { return true }
	_, _, err := c.write(w, format{envelope: envelope}, head, objects, tail, always) // all objects are written
	return err
}

// WriteEvents writes the beginning of a watch: the objects as events, and the tail. It calls proceed before each segment and
// before the tail. If proceed returns false, WriteEvents ends the gzip member there.
//
// written is the number of objects in the member, and plainLength is the member's length before compression (modulo 2³²). If w
// fails, both also count objects and bytes that did not reach the client.
func (c *Compressor) WriteEvents(
	w io.Writer, envelope *wire.Envelope, objects []*index.Object, tail []byte, proceed func() bool,
) (written int, plainLength uint32, err error) {
	return c.write(w, format{envelope: envelope, events: true}, nil, objects, tail, proceed)
}

// write writes a list or initial events: the head, the segments of the objects, and the tail. It calls proceed as
// [Compressor.WriteEvents] says.
func (c *Compressor) write(
	w io.Writer, f format, head []byte, objects []*index.Object, tail []byte, proceed func() bool,
) (written int, plainLength uint32, err error) {
	m := member{w: w}
	m.write(gzipHeader)
	m.writeStored(head)
	written = c.writeObjects(&m, f, objects, proceed)
	if m.err == nil && written == len(objects) && proceed() {
		m.writeStored(tail)
	}
	m.end()
	return written, m.length, m.err
}

// writeObjects writes the segments of the objects until proceed returns false or m fails, and returns the number of objects
// in them.
func (c *Compressor) writeObjects(m *member, f format, objects []*index.Object, proceed func() bool) (written int) {
	for m.err == nil && written < len(objects) {
		next, _ := cut(objects[written:], segmentTarget)
		s := c.findOrCompress(f, next) // This may take long, so proceed is called afterwards.
		if !proceed() {
			break
		}
		if written > 0 && !f.events {
			m.writeStored([]byte(f.envelope.Separator()))
		}
		m.writeSegment(s)
		written += len(next)
	}
	return written
}

// findOrCompress returns the segment of the objects. It takes the cached segment if that has exactly these versions of the
// objects. If not, it makes a segment of the objects, in which it reuses pieces of the cached segment, and keeps the new
// segment.
func (c *Compressor) findOrCompress(f format, objects []*index.Object) *segment {
	key := cacheKey(f, objects)
	cached := c.find(key, f.events)
	if sameNumbers(cached.numbers, objects) {
		c.found.Add(1)
		return cached
	}
	result, _, _ := c.flights.Do(flightKey(f, objects), func() (any, error) { // There is never an error.
		s := c.compress(f, objects, cached)
		c.keep(key, s)
		return s, nil
	})
	s, _ := result.(*segment) // It always is one.
	return s
}

// hashSeed is the seed of cacheKey.
var hashSeed = maphash.MakeSeed()

// cacheKey returns the key of a segment in the cache: a hash of its first and last object, the collection and the format. All
// versions of a segment have the same key. Two segments may have the same hash by chance. So whoever finds a segment compares
// its format (find) and the numbers of its objects (findOrCompress).
func cacheKey(f format, objects []*index.Object) uint64 {
	first, last := objects[0], objects[len(objects)-1]
	return maphash.Comparable(hashSeed, struct {
		first, last uint32
		collection  uint64
		events      bool
	}{
		first:      first.KeyHash,
		last:       last.KeyHash,
		collection: first.Number >> index.ObjectNumberBits,
		events:     f.events,
	})
}

// flightKey returns the key of a segment in flights: the format, and the versions of all its objects. Unlike cacheKey, it
// differs between the versions of a segment, so requests share a compression only if they need the same version.
func flightKey(f format, objects []*index.Object) string {
	text := strconv.AppendBool(make([]byte, 0, len("false")+8*len(objects)), f.events)
	for _, o := range objects {
		text = binary.LittleEndian.AppendUint64(text, o.Number)
	}
	return string(text)
}

// find returns the cached segment with a key, or an empty segment if there is none in this format.
func (c *Compressor) find(key uint64, events bool) *segment {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if s, found := c.segments.Get(key); found && s.events == events {
		return s
	}
	return &segment{}
}

// keep stores a segment in the cache. The cache may drop it at once: it prefers segments that are often read.
func (c *Compressor) keep(key uint64, s *segment) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_ = c.segments.Set(key, s, s.size())
}

// CompressorStats counts the work of a Compressor since it was made, and what it keeps now.
type CompressorStats struct {
	// Found is the number of segments that were found in the cache. Made is the number of segments that were compressed.
	Found, Made uint64
	// Kept is the number of bytes in the cache, by the cache's own count.
	Kept int64
}

// Stats returns the counters.
func (c *Compressor) Stats() CompressorStats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	kept := c.segments.MaxCost() - c.segments.RemainingCost()
	return CompressorStats{Found: c.found.Load(), Made: c.made.Load(), Kept: kept}
}

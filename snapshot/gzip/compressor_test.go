package gzip

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// newObjects returns n objects of about size bytes each, whose numbers begin with first. Objects with other numbers differ.
func newObjects(first, n, size int) []*index.Object {
	random := rand.New(rand.NewPCG(uint64(first), 1))
	members := make([]string, 64) // the objects share them, so that they can be compressed
	for i := range members {
		const format = `"field-%d":"a value that many objects have: %x","number":%d,`
		members[i] = fmt.Sprintf(format, i, random.Uint32(), random.IntN(100))
	}
	objects := make([]*index.Object, n)
	for i := range objects {
		name := fmt.Sprintf("object-%06d", first+i-1)
		var text bytes.Buffer
		fmt.Fprintf(&text, `{"metadata":{"name":%q,"uid":"%016x"},"spec":{`, name, random.Uint64())
		for text.Len() < size {
			text.WriteString(members[random.IntN(len(members))])
		}
		text.WriteString(`"end":true}}`)
		objects[i] = index.NewObject(uint64(first+i), "ns/"+name, 1, text.Bytes())
	}
	return objects
}

// newVersion returns a new version of an object, with bytes added at its end.
func newVersion(number uint64, o *index.Object, added string) *index.Object {
	return index.NewObject(number, o.Key, 2, append(bytes.Clone(o.Bytes), added...))
}

func newTestCompressor(t testing.TB, size int64) *Compressor {
	t.Helper()
	c, err := NewCompressor(size)
	expect.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// checkList writes a list with c, and requires that a client reads the same bytes as Render writes.
func checkList(t testing.TB, c *Compressor, objects []*index.Object) {
	t.Helper()
	envelope := samples.Envelope("PodList", "v1")
	meta := wire.ListMeta{Revision: 7, Continue: "x"}
	head, tail := envelope.AppendHead(nil, meta, len(objects), 0), envelope.AppendTail(nil, meta, len(objects))
	var out bytes.Buffer
	expect.NoError(t, c.Write(&out, envelope, head, objects, tail))
	items := make([][]byte, len(objects))
	for i, o := range objects {
		items[i] = o.Bytes
	}
	want := envelope.Render(meta, items)
	if got := readMember(t, &out); !bytes.Equal(got, want) {
		t.Fatalf("a list of %d objects: a client reads %d bytes, not the %d of Render", len(objects), len(got), len(want))
	}
}

// readMember decompresses one gzip member with the standard library's reader, which shares no code with Compressor.
// There must be no bytes after the member.
func readMember(t testing.TB, in *bytes.Buffer) []byte {
	t.Helper()
	unzip, err := gzip.NewReader(in)
	expect.NoError(t, err)
	unzip.Multistream(false)
	got, err := io.ReadAll(unzip) // checks length and checksum, too
	expect.NoError(t, err)
	if in.Len() > 0 {
		t.Errorf("%d bytes follow the member", in.Len())
	}
	return got
}

// countKept returns the numbers of segments and bytes in the cache.
func (c *Compressor) countKept() (segments int, bytes int64) {
	c.segments.Wait()
	c.segments.IterValues(func(s *segment) bool {
		segments++
		bytes += s.size()
		return false // do not stop
	})
	return segments, bytes
}

// TestWritten: Write and WriteEvents write the current objects, whatever was added, removed and changed since the last list.
// The cache keeps segments, and no more bytes than its size.
func TestWritten(t *testing.T) {
	const (
		// Where a list is split differs from process to process (index.Object.KeyHash).
		listSize   = 10 * segmentTarget // about ten segments
		largeCache = 64 << 20
		lists      = 12
	)
	for name, tt := range map[string]struct {
		objectSize, cacheSize int
	}{
		"small objects":                 {objectSize: 60, cacheSize: largeCache},
		"objects of half a piece":       {objectSize: pieceTarget / 2, cacheSize: largeCache},
		"objects longer than a segment": {objectSize: 8 * segmentTarget, cacheSize: largeCache},
		"a small cache":                 {objectSize: 900, cacheSize: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCompressor(t, int64(tt.cacheSize))
			random := rand.New(rand.NewPCG(uint64(tt.objectSize), 2))
			objects := newObjects(1, 1+listSize/tt.objectSize, tt.objectSize)
			checkList(t, c, nil)
			next := uint64(1_000_000) // above the numbers of the first objects
			for range lists {
				checkList(t, c, objects)
				if segments, bytes := c.countKept(); segments == 0 || bytes > int64(tt.cacheSize) {
					t.Fatalf("got %d segments with %d bytes in the cache, want some with at most %d", segments, bytes, tt.cacheSize)
				}
				if random.IntN(lists) == 0 { // about once, since it takes long
					checkEvents(t, c, objects)
				}
				objects = slices.Clone(objects)
				for range min(1+random.IntN(3), len(objects)) {
					at := random.IntN(len(objects))
					o := objects[at]
					next++
					switch random.IntN(4) {
					case 0:
						objects = slices.Delete(objects, at, at+1)
					case 1: // the new object has the bytes of another one
						added := index.NewObject(next, o.Key+"+", 2, objects[random.IntN(len(objects))].Bytes)
						objects = slices.Insert(objects, at+1, added)
					default: // up to two spaces more
						objects[at] = newVersion(next, o, "  "[:random.IntN(3)])
					}
				}
				if len(objects) == 0 {
					objects = newObjects(1, 1, 10)
				}
			}
		})
	}
}

// checkEvents writes the initial events of a watch again and again: proceed returns false at the first call, then at the
// second, and so on, until everything is written. Each time, a client must read the objects that WriteEvents says it has
// written and, if those are all, the tail.
func checkEvents(t *testing.T, c *Compressor, objects []*index.Object) {
	t.Helper()
	envelope, tail := samples.Envelope("PodList", "v1"), "the end\n"
	complete := false
	for allowed := 0; !complete; allowed++ {
		calls := 0
		proceed := func() bool {
			calls++
			return calls <= allowed
		}
		var out bytes.Buffer
		written, plain, err := c.WriteEvents(&out, envelope, objects, []byte(tail), proceed)
		expect.NoError(t, err)
		complete = calls <= allowed
		if calls > allowed+1 {
			t.Fatalf("proceed was called %d times, want no call after it returned false at call %d", calls, allowed+1)
		}
		if complete && written < len(objects) {
			t.Fatalf("proceed never returned false: got %d objects written, want %d", written, len(objects))
		}
		var want []byte
		for _, o := range objects[:written] {
			want = envelope.AppendEvent(want, wire.Added, o.Bytes)
		}
		if complete {
			want = append(want, tail...)
		}
		if got := readMember(t, &out); !bytes.Equal(got, want) {
			t.Fatalf("proceed returned false at call %d: a client reads %d bytes, not the %d of the events", allowed+1, len(got), len(want))
		}
		if int(plain) != len(want) {
			t.Fatalf("proceed returned false at call %d: got plain %d, want %d", allowed+1, plain, len(want))
		}
	}
}

// TestJoinedMembers: Go's reader, which client-go uses, returns all bytes that WriteEvents or WriteStored has written before
// it waits for the next member, which may come much later.
func TestJoinedMembers(t *testing.T) {
	c := newTestCompressor(t, 64<<20)
	envelope, objects := samples.Envelope("PodList", "v1"), newObjects(1_000, 500, 6600)
	var conn connection
	_, _, err := c.WriteEvents(&conn, envelope, objects, []byte("the end\n"), func() bool { return true })
	expect.NoError(t, err)
	var events []byte
	for _, o := range objects {
		events = envelope.AppendEvent(events, wire.Added, o.Bytes)
	}
	client, err := gzip.NewReader(&conn)
	expect.NoError(t, err)
	expectRead := func(want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		_, err := io.ReadFull(client, got)
		expect.NoError(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("the client does not read the %d bytes that were written", len(want))
		}
		if conn.hasWaited {
			t.Fatalf("the client waits for the next member before it has read all %d bytes", len(want))
		}
	}
	expectRead(append(events, "the end\n"...))
	for _, later := range [][]byte{
		[]byte("one"), bytes.Repeat([]byte("many"), maxStored), {}, bytes.Repeat([]byte("x"), maxStored),
	} {
		half := len(later) / 2
		expect.NoError(t, WriteStored(&conn, slices.Values([][]byte{later[:half], later[half:]})))
		expectRead(later)
	}
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last member: got %d bytes and error %v, want %v", n, err, io.EOF)
	}
}

// connection is the connection that a client reads from.
type connection struct {
	bytes.Buffer
	hasWaited bool // the client has tried to read bytes that were not written yet
}

// Read implements io.Reader.
func (c *connection) Read(p []byte) (int, error) {
	c.hasWaited = c.hasWaited || c.Len() == 0
	return c.Buffer.Read(p)
}

// TestListIsCompressedOnce: Write does not compress the segments of an unchanged list again.
func TestListIsCompressedOnce(t *testing.T) {
	c := newTestCompressor(t, 256<<20)
	objects := newObjects(1, 600, 6600)
	checkList(t, c, objects)
	c.segments.Wait()
	made := c.Stats().Made
	checkList(t, c, objects)
	expect.Same(t, made, c.Stats().Made)
}

// TestFewPiecesAreCompressedAgain: after a change of one object, compress makes at most two new pieces of its segment: the
// piece with the object, and the next, which refers to it.
func TestFewPiecesAreCompressedAgain(t *testing.T) {
	c := newTestCompressor(t, 0)
	objects := newObjects(1, 600, 6600)
	f := format{envelope: samples.Envelope("PodList", "v1")}
	earlier := c.compress(f, objects, nil)
	clear(earlier.deflated) // so that pieces that are used again have only zero bytes
	changed := slices.Clone(objects)
	changed[300] = newVersion(1_000_000, objects[300], " ")
	s := c.compress(f, changed, earlier)
	again := 0
	for i := range s.pieces {
		if !bytes.Equal(s.bytesOf(i), make([]byte, len(s.bytesOf(i)))) {
			again++
		}
	}
	if again < 1 || again > 2 || len(s.pieces) < 20 {
		t.Errorf("%d of %d pieces were compressed again, want 1 or 2 of at least 20", again, len(s.pieces))
	}
}

// TestEqualCacheKeys: Write writes the list's own objects, even if the cache has other objects under a segment's key.
func TestEqualCacheKeys(t *testing.T) {
	c := newTestCompressor(t, 1<<20)
	objects, others := newObjects(1, 3, 50_000), newObjects(1001, 3, 50_000)
	f := format{envelope: samples.Envelope("PodList", "v1")}
	key := cacheKey(f, objects[:firstLength(objects, segmentTarget)])
	c.segments.Set(key, c.compress(f, others, nil), 1)
	c.segments.Wait()
	if _, found := c.segments.Get(key); !found {
		t.Fatal("the cache has no segment under the key")
	}
	checkList(t, c, objects)
}

// TestPiecesElsewhere: compress uses pieces of an earlier segment again only where they have the same bytes. The first object
// of a segment has no comma before it, unlike the others, and the second piece may refer to that. Events have no commas.
func TestPiecesElsewhere(t *testing.T) {
	envelope := samples.Envelope("PodList", "v1")
	c := newTestCompressor(t, 0)
	list, events := format{envelope: envelope}, format{envelope: envelope, events: true}
	// Where pieces begin differs from process to process (index.Object.KeyHash), so one size has several tries.
	for try, size := range append(slices.Repeat([]int{3000}, 12), 300, 20_000) {
		objects := newObjects(1+1000*try, max(3, 3*pieceTarget/size), size) // about three pieces
		for _, earlierFormat := range []format{list, events} {
			earlier := c.compress(earlierFormat, objects, nil)
			for i := range objects[:min(len(objects), 40)] {
				fewer := objects[i:]
				added := index.NewObject(uint64(100_000+i), "a", 1, objects[i].Bytes)
				more := append([]*index.Object{added}, objects...)
				for _, f := range []format{list, events} {
					checkSegment(t, f, fewer, c.compress(f, fewer, earlier))
					checkSegment(t, f, more, c.compress(f, more, earlier))
				}
			}
		}
	}
}

// checkSegment requires that a segment has these objects.
func checkSegment(t *testing.T, f format, objects []*index.Object, s *segment) {
	t.Helper()
	var want []byte
	for i, o := range objects {
		want = f.appendObject(want, i, o)
	}
	got, err := io.ReadAll(flate.NewReader(bytes.NewReader(s.deflated)))
	if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, want) || s.crc != crc32.ChecksumIEEE(want) {
		t.Fatalf("a segment of %d objects (events: %t): got %d bytes, not the %d of the objects, or another checksum (%v)", len(objects), f.events, len(got), len(want), err)
	}
}

// TestConcurrentWrites: Write writes a list whole to each of several clients at the same time.
func TestConcurrentWrites(t *testing.T) {
	c := newTestCompressor(t, 64<<20)
	objects := newObjects(1, 100, 6600)
	var writers sync.WaitGroup
	for range 10 {
		writers.Go(func() { checkList(t, c, objects) })
	}
	writers.Wait()
}

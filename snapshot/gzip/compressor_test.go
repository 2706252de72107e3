package gzip

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

const (
	// podSize is the size of a usual pod in bytes.
	podSize = 6600
	// largeCache is the size of a cache that keeps all segments of a test.
	largeCache = 256 << 20
	// laterNumber is above the numbers of all objects that a test begins with.
	laterNumber = 1_000_000
)

var (
	envelope = samples.Envelope("PodList", "v1")
	listMeta = wire.ListMeta{Revision: 7, Continue: "x"}
)

// newObjects returns n objects of about size bytes each. Their numbers and names begin at first. first is also the seed of
// their random bytes, so objects with another first have other bytes.
func newObjects(first, n, size int) []*index.Object {
	random := rand.New(rand.NewPCG(uint64(first), 1))
	members := make([]string, 64) // the objects share them, so that they can be compressed
	for i := range members {
		const member = `"field-%d":"a value that many objects have: %x","number":%d,`
		members[i] = fmt.Sprintf(member, i, random.Uint32(), random.IntN(100))
	}
	objects := make([]*index.Object, n)
	for i := range objects {
		name := fmt.Sprintf("object-%06d", first+i)
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

// newVersion returns a new version of an object, with this number, and with added at the end of its bytes.
func newVersion(number uint64, o *index.Object, added string) *index.Object {
	return index.NewObject(number, o.Key, 2, append(bytes.Clone(o.Bytes), added...))
}

// newTestCompressor returns a Compressor with a cache of a size. It is closed at the end of the test.
func newTestCompressor(t testing.TB, cacheSize int64) *Compressor {
	t.Helper()
	c, err := NewCompressor(cacheSize)
	expect.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// checkList writes a list of objects with c, and checks that a client reads it.
func checkList(t testing.TB, c *Compressor, objects []*index.Object) {
	t.Helper()
	var out bytes.Buffer
	expect.NoError(t, writeList(c, &out, objects))
	checkWritten(t, &out, objects)
}

// writeList writes a list of objects with c.
func writeList(c *Compressor, out io.Writer, objects []*index.Object) error {
	const itemsSize = 0 // only protobuf needs the size
	head, tail := envelope.Frame(listMeta, len(objects), itemsSize)
	return c.Write(out, envelope, head, objects, tail)
}

// checkWritten checks that a client reads a list of these objects from in, with the bytes that Render writes.
func checkWritten(t testing.TB, in *bytes.Buffer, objects []*index.Object) {
	t.Helper()
	items := make([][]byte, len(objects))
	for i, o := range objects {
		items[i] = o.Bytes
	}
	want := envelope.Render(listMeta, items)
	if got := readMember(t, in); !bytes.Equal(got, want) {
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

// countKept waits until the cache of c has taken in all segments. It returns their number and their size in bytes.
func countKept(c *Compressor) (segments int, size int64) {
	c.segments.Wait()
	c.segments.IterValues(func(s *segment) bool {
		segments++
		size += s.size()
		return false // do not stop
	})
	return segments, size
}

// TestWriteAfterChanges: Write and WriteEvents write the current objects, whatever was added, removed and changed since the
// last list. The cache keeps segments, and no more bytes than its size.
func TestWriteAfterChanges(t *testing.T) {
	const (
		listSize = 10 * segmentTarget // in bytes: about ten segments, since segmentTarget is the average
		lists    = 12                 // the number of lists, with changes between them
	)
	for name, tt := range map[string]struct{ objectSize, cacheSize int }{ // in bytes
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
			next := uint64(laterNumber) // the number of the next object
			for range lists {
				checkList(t, c, objects)
				if n, size := countKept(c); n == 0 || size > int64(tt.cacheSize) {
					t.Fatalf("got %d segments with %d bytes in the cache, want some with at most %d", n, size, tt.cacheSize)
				}
				if isChosen := random.IntN(lists) == 0; isChosen { // checkEvents takes long, so it runs for about one list
					checkEvents(t, c, objects)
				}
				objects = slices.Clone(objects)
				for range min(1+random.IntN(3), len(objects)) { // one to three changes
					objects = changeObject(objects, next, random)
					next++
				}
				if len(objects) == 0 { // All were removed.
					objects = newObjects(1, 1, 10)
				}
			}
		})
	}
}

// changeObject removes or changes a random object, or adds an object after it. A new object or version gets the number next.
func changeObject(objects []*index.Object, next uint64, random *rand.Rand) []*index.Object {
	at := random.IntN(len(objects))
	o := objects[at]
	switch random.IntN(4) {
	case 0:
		return slices.Delete(objects, at, at+1)
	case 1:
		bytesOfAnother := objects[random.IntN(len(objects))].Bytes
		return slices.Insert(objects, at+1, index.NewObject(next, o.Key+"+", 2, bytesOfAnother))
	}
	noneToTwoSpaces := "  "[:random.IntN(3)]
	objects[at] = newVersion(next, o, noneToTwoSpaces)
	return objects
}

// checkEvents checks what WriteEvents writes if proceed always returns true, and if it returns false at one of its calls: at
// the first, at the second, and so on.
func checkEvents(t *testing.T, c *Compressor, objects []*index.Object) {
	t.Helper()
	const never = math.MaxInt
	allCalls := checkEventsUntil(t, c, objects, never)
	for maxCalls := range allCalls {
		checkEventsUntil(t, c, objects, maxCalls)
	}
}

// checkEventsUntil writes the initial events of a watch. The function proceed returns true at the first maxCalls calls, and
// then false. A client must read the events of the objects that WriteEvents says it has written. If proceed never returned
// false, these must be all objects, and the client must read the tail, too. checkEventsUntil returns how often proceed returned
// true.
func checkEventsUntil(t *testing.T, c *Compressor, objects []*index.Object, maxCalls int) (calls int) {
	t.Helper()
	const tail = "the end\n"
	isStopped := false
	proceed := func() bool {
		if isStopped {
			t.Fatalf("proceed was called again after it had returned true %d times, and then false", maxCalls)
		}
		isStopped = calls == maxCalls
		if !isStopped {
			calls++
		}
		return !isStopped
	}
	var out bytes.Buffer
	written, plainLength, err := c.WriteEvents(&out, envelope, objects, []byte(tail), proceed)
	expect.NoError(t, err)
	want := eventsOf(objects[:written])
	if !isStopped {
		expect.Same(t, len(objects), written)
		want = append(want, tail...)
	}
	got := readMember(t, &out)
	if !bytes.Equal(got, want) || int(plainLength) != len(want) {
		t.Fatalf("proceed returns true at most %d times: a client reads %d bytes, and WriteEvents returns the plain length %d, "+
			"not the %d bytes of the events", maxCalls, len(got), plainLength, len(want))
	}
	return calls
}

// eventsOf returns the initial events of objects.
func eventsOf(objects []*index.Object) (events []byte) {
	for _, o := range objects {
		events = envelope.AppendEvent(events, wire.Added, o.Bytes)
	}
	return events
}

// TestJoinedMembers: a watch is a sequence of gzip members, and the next member may come much later. Go's gzip reader, which
// client-go uses, returns all bytes that WriteEvents or WriteStored has written before it waits for the next member.
func TestJoinedMembers(t *testing.T) {
	c := newTestCompressor(t, largeCache)
	objects := newObjects(1_000, 500, podSize)
	var conn connection
	_, _, err := c.WriteEvents(&conn, envelope, objects, []byte("the end\n"), func() bool { return true })
	expect.NoError(t, err)
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
	expectRead(append(eventsOf(objects), "the end\n"...))
	for _, later := range [][]byte{
		[]byte("short"),
		bytes.Repeat([]byte("long"), maxStored), // several stored blocks
		{},
		bytes.Repeat([]byte("x"), maxStored), // exactly one stored block
	} {
		half := len(later) / 2
		expect.NoError(t, WriteStored(&conn, slices.Values([][]byte{later[:half], later[half:]})))
		expectRead(later)
	}
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last member: got %d bytes and error %v, want %v", n, err, io.EOF)
	}
}

// connection is a connection in memory. A client reads from it what was written to it.
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
	c := newTestCompressor(t, largeCache)
	objects := newObjects(1, 600, podSize)
	checkList(t, c, objects)
	c.segments.Wait()
	madeByFirst := c.Stats().Made
	checkList(t, c, objects)
	expect.Same(t, madeByFirst, c.Stats().Made)
}

// TestFewPiecesAreCompressedAgain: a segment is compressed in pieces. After a change of one object, compress makes at most two
// new pieces of its segment: the piece with the object, and the next piece, which refers to bytes of the piece before it.
func TestFewPiecesAreCompressedAgain(t *testing.T) {
	c := newTestCompressor(t, 0)
	objects := newObjects(1, 600, podSize)
	f := format{envelope: envelope}
	earlier := c.compress(f, objects, &segment{})
	clear(earlier.deflated) // A reused piece now has only zero bytes, unlike a piece that is compressed again.
	changed := slices.Clone(objects)
	middle := len(objects) / 2
	changed[middle] = newVersion(laterNumber, objects[middle], " ")
	s := c.compress(f, changed, earlier)
	compressed := 0
	for i := range s.pieces {
		if slices.Max(s.bytesOf(i)) != 0 {
			compressed++
		}
	}
	if compressed < 1 || compressed > 2 || len(s.pieces) < 20 {
		t.Errorf("%d of %d pieces were compressed again, want 1 or 2 of at least 20", compressed, len(s.pieces))
	}
}

// TestEqualCacheKeys: Write writes the list's own objects, even if two segments share a key by chance: the cache has other
// objects under the key of the list's first segment, or the same objects as events.
func TestEqualCacheKeys(t *testing.T) {
	c := newTestCompressor(t, 1<<20)
	objects, others := newObjects(1, 3, 50_000), newObjects(1001, 3, 50_000)
	list, events := format{envelope: envelope}, format{envelope: envelope, events: true}
	first, _ := cut(objects, segmentTarget) // the objects of the list's first segment
	key := cacheKey(list, first)
	for _, cached := range []*segment{c.compress(list, others, &segment{}), c.compress(events, first, &segment{})} {
		const size = 1 // So small that the cache keeps the segment.
		c.segments.Set(key, cached, size)
		c.segments.Wait()
		if _, found := c.segments.Get(key); !found {
			t.Fatal("the cache has no segment under the key")
		}
		checkList(t, c, objects)
	}
}

// TestReusedPiecesFit: compress makes a segment with the bytes of its own objects, although it reuses pieces of an earlier
// segment. After objects were removed or added at the beginning, not every earlier piece fits: in a list, all objects of a
// segment but the first have a comma before them, and a piece may refer to the piece before it.
func TestReusedPiecesFit(t *testing.T) {
	c := newTestCompressor(t, 0)
	list, events := format{envelope: envelope}, format{envelope: envelope, events: true}
	// index.Object.KeyHash decides where pieces begin, and differs from process to process. So the usual size is tried often.
	const ( // sizes of an object in bytes
		small = 300
		usual = 3000
		large = 20_000
	)
	const tries = 12 // of the usual size
	for try, size := range append(slices.Repeat([]int{usual}, tries), small, large) {
		forThreePieces := max(3, 3*pieceTarget/size) // as many objects as about three pieces have
		objects := newObjects(1+1000*try, forThreePieces, size)
		for _, f := range []format{list, events} {
			earlier := c.compress(f, objects, &segment{})
			for i := range objects[:min(len(objects), 40)] {
				firstRemoved := objects[i:]
				checkSegment(t, f, firstRemoved, c.compress(f, firstRemoved, earlier))
				added := index.NewObject(uint64(100_000+i), "a", 1, objects[i].Bytes)
				oneAdded := append([]*index.Object{added}, objects...)
				checkSegment(t, f, oneAdded, c.compress(f, oneAdded, earlier))
			}
		}
	}
}

// checkSegment checks that a segment has the bytes of these objects.
func checkSegment(t *testing.T, f format, objects []*index.Object, s *segment) {
	t.Helper()
	want := f.appendObjects(nil, 0, objects)
	got, err := io.ReadAll(flate.NewReader(bytes.NewReader(s.deflated)))
	if !errors.Is(err, io.ErrUnexpectedEOF) { // Other segments may follow, so no block is marked as the last one.
		t.Fatalf("after a segment: got error %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("a segment of %d objects (events: %t): got %d bytes, not the %d of the objects", len(objects), f.events, len(got), len(want))
	}
	if wantCRC := crc32.ChecksumIEEE(want); s.crc != wantCRC {
		t.Fatalf("a segment of %d objects (events: %t): got checksum %x, want %x", len(objects), f.events, s.crc, wantCRC)
	}
}

// TestConcurrentWrites: Write writes whole lists to several clients at the same time, even while the Compressor is closed.
func TestConcurrentWrites(t *testing.T) {
	c := newTestCompressor(t, largeCache)
	objects := newObjects(1, 100, podSize)
	var outs [10]bytes.Buffer
	var writers sync.WaitGroup
	for i := range outs {
		writers.Go(func() {
			if err := writeList(c, &outs[i], objects); err != nil {
				t.Error(err)
			}
		})
	}
	c.Close()
	writers.Wait()
	for i := range outs {
		checkWritten(t, &outs[i], objects)
	}
}

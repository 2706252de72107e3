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

// unpack decompresses as any client does, with the standard library's reader, which shares no code with the writer.
func unpack(compressed io.Reader) ([]byte, error) {
	in, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}

// newObjects returns n objects of about a size, with numbers from first on.
func newObjects(first, n, size int) []*index.Object {
	random := rand.New(rand.NewPCG(uint64(first), 1))
	texts := make([]string, 64)
	for i := range texts {
		const field = `"field-%d":"a value that is the same, or nearly: %x","other":%d,`
		texts[i] = fmt.Sprintf(field, i, random.Uint32(), random.IntN(100))
	}
	objects := make([]*index.Object, n)
	for i := range objects {
		name := fmt.Sprintf("object-%06d", first+i-1)
		var text bytes.Buffer
		fmt.Fprintf(&text, `{"metadata":{"name":%q,"uid":"%016x"},"spec":{`, name, random.Uint64())
		for text.Len() < size {
			text.WriteString(texts[random.IntN(len(texts))])
		}
		text.WriteString(`"end":true}}`)
		objects[i] = index.NewObject(uint64(first+i), "ns/"+name, 1, text.Bytes())
	}
	return objects
}

func newTestCompressor(t testing.TB, size int64) *Compressor {
	t.Helper()
	c, err := NewCompressor(size)
	expect.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// checkList writes a list and requires that it is the same when it is read again.
func checkList(t testing.TB, c *Compressor, objects []*index.Object) {
	t.Helper()
	envelope := samples.Envelope("PodList", "v1")
	meta := wire.ListMeta{Revision: 7, Continue: "x"}
	head, tail := envelope.AppendHead(nil, meta, len(objects), 0), envelope.AppendTail(nil, meta, len(objects))
	var out bytes.Buffer
	expect.NoError(t, c.Write(&out, envelope, head, objects, tail))
	got := readMember(t, &out)
	items := make([][]byte, len(objects))
	for i, o := range objects {
		items[i] = o.Bytes
	}
	if want := envelope.Render(meta, items); !bytes.Equal(got, want) {
		t.Fatalf("%d objects: %d bytes came out, want the %d that went in", len(objects), len(got), len(want))
	}
}

// readMember decompresses what must be one member, and nothing else.
func readMember(t testing.TB, in *bytes.Buffer) []byte {
	t.Helper()
	unzip, err := gzip.NewReader(in)
	expect.NoError(t, err)
	unzip.Multistream(false)
	got, err := io.ReadAll(unzip) // checks length and checksum, too
	expect.NoError(t, err)
	if in.Len() > 0 {
		t.Errorf("%d bytes follow", in.Len())
	}
	return got
}

// countKept returns how many segments and bytes are kept.
func (c *Compressor) countKept() (segments int, bytes int64) {
	c.segments.Wait()
	c.segments.IterValues(func(s *segment) bool {
		segments++
		bytes += s.size()
		return false
	})
	return segments, bytes
}

// TestWritten: lists and the initial events of watches are written as they are, whatever came, went and changed since
// the last time. They are made of old pieces and new ones, and no more is kept than there is room for.
func TestWritten(t *testing.T) {
	// Where a list is cut differs from process to process (index.Object.KeyHash): it is of ten pieces or so.
	const whole = 10 * segmentTarget
	for _, tt := range []struct {
		size int // of an object
		room int
	}{
		{size: 60, room: 64 << 20},
		{size: 9000, room: 64 << 20},
		{size: 2 * maxSegmentSize, room: 64 << 20},
		{size: 900, room: 1 << 16},
	} {
		c := newTestCompressor(t, int64(tt.room))
		random := rand.New(rand.NewPCG(uint64(tt.size), 2))
		objects := newObjects(1, 1+whole/tt.size, tt.size)
		next := uint64(1_000_000)
		for range 12 {
			checkList(t, c, objects)
			if segments, bytes := c.countKept(); segments == 0 || bytes > int64(tt.room) {
				t.Fatalf("%d segments with %d bytes are kept, of at most %d", segments, bytes, tt.room)
			}
			if random.IntN(12) == 0 {
				checkEvents(t, c, objects)
			}
			objects = slices.Clone(objects)
			for range min(1+random.IntN(3), len(objects)) {
				at := random.IntN(len(objects))
				next++
				switch o := objects[at]; random.IntN(4) {
				case 0:
					objects = slices.Delete(objects, at, at+1)
				case 1:
					made := index.NewObject(next, o.Key+"+", 2, objects[random.IntN(len(objects))].Bytes)
					objects = slices.Insert(objects, at+1, made)
				default:
					objects[at] = index.NewObject(next, o.Key, 2, append(bytes.Clone(o.Bytes), "\"\""[:random.IntN(3)]...))
				}
			}
			if len(objects) == 0 {
				objects = newObjects(1, 1, 10)
			}
		}
	}
	checkList(t, newTestCompressor(t, 1<<20), nil)
}

// checkEvents writes the initial events of a watch, interrupted after each possible number of them, and requires that
// they are the same when they are read again.
func checkEvents(t *testing.T, c *Compressor, objects []*index.Object) {
	t.Helper()
	envelope, before := samples.Envelope("PodList", "v1"), -1
	for allowed := 0; before < len(objects); allowed++ {
		var out, want bytes.Buffer
		asked := 0
		mayGoOn := func() bool {
			asked++
			return asked <= allowed
		}
		n, plain, err := c.WriteEvents(&out, envelope, objects, []byte("the end\n"), mayGoOn)
		if n < before || asked > allowed+1 || err != nil {
			t.Fatalf("allowed %d times, asked %d times, %d objects are written: %v", allowed, asked, n, err)
		}
		for _, o := range objects[:n] {
			want.Write(envelope.AppendEvent(nil, wire.Added, o.Bytes))
		}
		if before = n; asked <= allowed {
			want.WriteString("the end\n")
		} else if n == len(objects) {
			before-- // without its end
		}
		if got, err := unpack(&out); err != nil || !bytes.Equal(got, want.Bytes()) || int(plain) != want.Len() {
			t.Fatalf("allowed %d times: %d bytes came out, want %d: %v", allowed, len(got), want.Len(), err)
		}
	}
}

// TestJoinedMembers: Go's reader, with which client-go reads, hands out all that a member of a watch holds before it
// waits for the next one, which may come much later.
func TestJoinedMembers(t *testing.T) {
	c := newTestCompressor(t, 64<<20)
	envelope, objects := samples.Envelope("PodList", "v1"), newObjects(1_000, 500, 6600)
	var conn connection
	_, _, err := c.WriteEvents(&conn, envelope, objects, []byte("the end\n"), func() bool { return true })
	expect.NoError(t, err)
	var want []byte
	for _, o := range objects {
		want = envelope.AppendEvent(want, wire.Added, o.Bytes)
	}
	client, err := gzip.NewReader(&conn)
	expect.NoError(t, err)
	expectRead := func(want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(client, got); err != nil || conn.waits || !bytes.Equal(got, want) {
			t.Fatalf("the client reads other bytes than %d, or waits for more: %t, %v", len(want), conn.waits, err)
		}
	}
	expectRead(append(want, "the end\n"...))
	for _, later := range [][]byte{
		[]byte("one"), bytes.Repeat([]byte("many"), maxStored), {}, bytes.Repeat([]byte("x"), maxStored),
	} {
		half := len(later) / 2
		expect.NoError(t, WriteStored(&conn, slices.Values([][]byte{later[:half], later[half:]})))
		expectRead(later)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("more comes out: %v", err)
	}
}

// TestCompressedOnce: an unchanged list is not compressed again. After a change of one object, at most two pieces of its
// segment are: the one with the object, and the next, which refers to it.
func TestCompressedOnce(t *testing.T) {
	c := newTestCompressor(t, 256<<20)
	objects := newObjects(1, 600, 6600)
	checkList(t, c, objects)
	c.segments.Wait()
	made := c.Stats().Made
	checkList(t, c, objects)
	expect.Same(t, made, c.Stats().Made)

	f := format{envelope: samples.Envelope("PodList", "v1")}
	earlier := c.compress(f, objects, nil)
	clear(earlier.deflated) // marks the pieces that are used again
	changed := slices.Clone(objects)
	changed[300] = index.NewObject(1_000_000, objects[300].Key, 2, append(bytes.Clone(objects[300].Bytes), ' '))
	s := c.compress(f, changed, earlier)
	again := 0
	for i := range s.pieces {
		if !bytes.Equal(s.bytesOf(i), make([]byte, len(s.bytesOf(i)))) {
			again++
		}
	}
	if again < 1 || again > 2 || len(s.pieces) < 20 {
		t.Errorf("%d of %d pieces were compressed again, want 1 or 2", again, len(s.pieces))
	}
}

// TestSegmentsOfOnePlace: two segments that are kept in the same place are told apart.
func TestSegmentsOfOnePlace(t *testing.T) {
	c := newTestCompressor(t, 1<<20)
	mine, yours := newObjects(1, 3, 50_000), newObjects(1001, 3, 50_000)
	f := format{envelope: samples.Envelope("PodList", "v1")}
	place := cacheKey(f, mine)
	c.keep(place, c.compress(f, yours, nil))
	c.segments.Wait()
	if c.find(place) == nil {
		t.Fatal("nothing is kept")
	}
	checkList(t, c, mine)
}

// TestPiecesBehindTheFirst: the first object of a segment lacks a comma that it has elsewhere, and the piece behind it may
// refer to that. Events have something else before each.
func TestPiecesBehindTheFirst(t *testing.T) {
	envelope := samples.Envelope("PodList", "v1")
	c := newTestCompressor(t, 0)
	// Where pieces begin follows from the names, differently in each process: so there is more than one try.
	for try, size := range append(slices.Repeat([]int{3000}, 12), 300, 20_000) {
		objects := newObjects(1+1000*try, max(3, 3*pieceTarget/size), size) // some pieces
		for _, earlier := range []bool{false, true} {
			whole := c.compress(format{envelope: envelope, events: earlier}, objects, nil)
			for from := range objects[:min(len(objects), 40)] {
				for _, events := range []bool{false, true} {
					// The objects from one on, and all objects behind one that is new.
					front := append([]*index.Object{index.NewObject(uint64(100_000+from), "a", 1, objects[from].Bytes)}, objects...)
					for _, part := range [][]*index.Object{objects[from:], front} {
						got := c.compress(format{envelope: envelope, events: events}, part, whole)
						var plain bytes.Buffer
						for i, o := range part {
							if events {
								fmt.Fprintf(&plain, "{\"type\":\"ADDED\",\"object\":%s}\n", o.Bytes)
								continue
							}
							plain.Write(envelope.AppendItemHead(nil, i, len(o.Bytes)))
							plain.Write(o.Bytes)
						}
						text, _ := io.ReadAll(flate.NewReader(bytes.NewReader(got.deflated))) // which has no end
						if !bytes.Equal(text, plain.Bytes()) || got.crc != crc32.ChecksumIEEE(plain.Bytes()) {
							t.Fatalf("objects of %d bytes from %d on, events %t, made of events %t: other bytes come out", size, from, events, earlier)
						}
					}
				}
			}
		}
	}
}

// connection is what a client reads from. It notes when the client wants what has not come yet.
type connection struct {
	bytes.Buffer
	waits bool
}

// Read implements io.Reader.
func (c *connection) Read(p []byte) (int, error) {
	c.waits = c.waits || c.Len() == 0
	return c.Buffer.Read(p)
}

// TestHerd: ten that write the same list at once, while the compressor is closed, write it rightly.
func TestHerd(t *testing.T) {
	c := newTestCompressor(t, 64<<20)
	objects := newObjects(1, 100, 6600)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { checkList(t, c, objects) })
	}
	c.Close() // they go on
	all.Wait()
}

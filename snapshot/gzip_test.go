package snapshot

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// someObjects have numbers from first on.
func someObjects(first, n, size int) []*Object {
	random := rand.New(rand.NewPCG(uint64(first), 1))
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = fmt.Sprintf(`"field-%d":"a value that is the same, or nearly: %x","other":%d,`, i, random.Uint32(), random.IntN(100))
	}
	objects := make([]*Object, n)
	for i := range objects {
		name := fmt.Sprintf("object-%06d", i)
		var text bytes.Buffer
		fmt.Fprintf(&text, `{"metadata":{"name":%q,"uid":"%016x"},"spec":{`, name, random.Uint64())
		for text.Len() < size {
			text.WriteString(texts[random.IntN(len(texts))])
		}
		text.WriteString(`"end":true}}`)
		objects[i] = newObject(uint64(first+i), "ns/"+name, 1, text.Bytes())
	}
	return objects
}

func newTestCompressor(t testing.TB, size int64) *Compressor {
	t.Helper()
	c, err := NewCompressor(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// compressed writes a list, reads it again, and returns its size on the wire.
func compressed(t testing.TB, c *Compressor, objects []*Object) int {
	t.Helper()
	s := Fixed(7, "PodList", "v1", nil)
	meta := ListMeta{Revision: 7, Continue: "x"}
	head, tail := s.Frame.AppendHead(nil, meta, len(objects), 0), s.Frame.AppendTail(nil, meta, len(objects))
	var out bytes.Buffer
	if err := c.Write(&out, s.Frame, head, objects, tail); err != nil {
		t.Fatal(err)
	}
	size := out.Len()
	unzip, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	unzip.Multistream(false)
	got, err := io.ReadAll(unzip) // checks length and checksum, too
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		t.Errorf("%d bytes follow", out.Len())
	}
	items := make([][]byte, len(objects))
	for i, o := range objects {
		items[i] = o.Bytes
	}
	if want := s.Frame.render(meta, items); !bytes.Equal(got, want) {
		t.Fatalf("%d objects: %d bytes came out, not the %d that went in", len(objects), len(got), len(want))
	}
	return size
}

// kept is how many segments and bytes there are.
func (c *Compressor) kept() (segments int, bytes int64) {
	c.segments.Wait()
	c.segments.IterValues(func(s *packed) bool {
		segments++
		bytes += int64(segmentOverhead + 8*len(s.numbers) + cap(s.deflated))
		return false
	})
	return segments, bytes
}

func TestCompressed(t *testing.T) {
	c := newTestCompressor(t, 64<<20)
	for _, objects := range [][]*Object{
		nil, someObjects(1, 1, 10), someObjects(11, 1, 3*segmentMost), someObjects(21, 3, 100_000),
		someObjects(1_000, 500, 6600), someObjects(10_000, 2000, 300), someObjects(20_000, 30, maxStored),
	} {
		for range 2 { // made, and found
			compressed(t, c, objects)
		}
	}
}

// TestCompressedOnce counts what is compressed: only what changed since the last list.
func TestCompressedOnce(t *testing.T) {
	c := newTestCompressor(t, 256<<20)
	objects := someObjects(1, 1200, 6600)
	compressed(t, c, objects)
	all, _ := c.kept()
	if least := 1200 * 6600 / segmentTarget / 2; all < least {
		t.Fatalf("%d segments, %d at least were to be expected", all, least)
	}
	made := func(change func([]*Object) []*Object) int {
		before, _ := c.kept()
		compressed(t, c, change(append([]*Object(nil), objects...)))
		after, _ := c.kept()
		return after - before
	}
	next := uint64(1_000_000)
	version := func(o *Object) *Object {
		next++
		return newObject(next, o.Key, 2, append(bytes.Clone(o.Bytes), ' '))
	}
	for _, tt := range []struct {
		name   string
		change func([]*Object) []*Object
		most   int
	}{
		{"nothing", func(o []*Object) []*Object { return o }, 0},
		{"an object", func(o []*Object) []*Object { o[600] = version(o[600]); return o }, 2},
		{"the first object", func(o []*Object) []*Object { o[0] = version(o[0]); return o }, 2},
		{"one comes", func(o []*Object) []*Object {
			next++
			return append(o[:800:800], append([]*Object{newObject(next, o[799].Key+"a", 2, o[0].Bytes)}, o[800:]...)...)
		}, 2},
		{"one goes", func(o []*Object) []*Object { return append(o[:700:700], o[701:]...) }, 2},
		{"the first one goes", func(o []*Object) []*Object { return o[1:] }, 2},
		{"a page of them", func(o []*Object) []*Object { return o[300:800] }, 2},
		{"the same page", func(o []*Object) []*Object { return o[300:800] }, 0},
	} {
		if got := made(tt.change); got > tt.most {
			t.Errorf("%s: %d segments were compressed, of %d; at most %d should be", tt.name, got, all, tt.most)
		}
	}
}

// TestCompressedSize: cut into segments, a list is at most 15% larger than as one with gzip -1.
func TestCompressedSize(t *testing.T) {
	c := newTestCompressor(t, 0)
	for _, size := range []int{400, 2000, 6600, 20_000} {
		objects := someObjects(1, 3<<20/size, size)
		var whole bytes.Buffer
		z, err := gzip.NewWriterLevel(&whole, gzipLevel)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			_, _ = z.Write(o.Bytes)
			_, _ = z.Write([]byte(","))
		}
		_ = z.Close()
		got := compressed(t, c, objects)
		t.Logf("objects of %d bytes: %d, whole %d", size, got, whole.Len())
		if float64(got) > 1.15*float64(whole.Len()) {
			t.Errorf("objects of %d bytes: %d bytes, as a whole %d", size, got, whole.Len())
		}
	}
}

// TestCompressorIsBounded: whatever is asked for, no more than its size is kept.
func TestCompressorIsBounded(t *testing.T) {
	const size = 1 << 18
	c := newTestCompressor(t, size)
	for i := range 20 {
		compressed(t, c, someObjects(1+i*1000, 100, 6600))
	}
	if segments, kept := c.kept(); segments == 0 || kept > size {
		t.Errorf("%d segments with %d bytes are kept, of at most %d", segments, kept, size)
	}
}

// TestSegmentsWithOneKey: two segments of which the keys are the same are told apart.
func TestSegmentsWithOneKey(t *testing.T) {
	c := newTestCompressor(t, 1<<20)
	mine, yours := someObjects(1, 3, 50_000), someObjects(1001, 3, 50_000)
	key, _ := segmentKey(mine, true)
	c.keep(key, c.compress(Fixed(1, "PodList", "v1", nil).Frame, yours, true))
	c.segments.Wait()
	if c.find(key) == nil {
		t.Fatal("nothing is kept")
	}
	compressed(t, c, mine)
}

// TestObjectsWithoutNumbers are written, and not kept.
func TestObjectsWithoutNumbers(t *testing.T) {
	c := newTestCompressor(t, 1<<20)
	objects := someObjects(1, 100, 6600)
	for _, o := range objects {
		o.number = 0
	}
	compressed(t, c, objects)
	if segments, _ := c.kept(); segments > 0 {
		t.Errorf("%d segments are kept", segments)
	}
}

// TestHerd: many who want the same at once.
func TestHerd(t *testing.T) {
	c := newTestCompressor(t, 64<<20)
	objects := someObjects(1, 100, 6600)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { compressed(t, c, objects) })
	}
	c.Close() // they go on
	all.Wait()
}

type brokenWriter struct{ left int }

var errBroken = errors.New("the client has gone")

func (b *brokenWriter) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestCompressedEndsWithItsWriter(t *testing.T) {
	c := newTestCompressor(t, 1<<20)
	frame, objects := Fixed(1, "PodList", "v1", nil).Frame, someObjects(1, 1000, 6600)
	if err := c.Write(&brokenWriter{left: 100_000}, frame, nil, objects, nil); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

func FuzzCRCJoin(f *testing.F) {
	f.Add("", "")
	f.Add("a", "")
	f.Add(strings.Repeat("x", 1000), "y")
	f.Fuzz(func(t *testing.T, first, second string) {
		got := crcJoin(crc32.ChecksumIEEE([]byte(first)), crc32.ChecksumIEEE([]byte(second)), crcShift(int64(len(second))))
		if want := crc32.ChecksumIEEE([]byte(first + second)); got != want {
			t.Errorf("%08x, not %08x", got, want)
		}
	})
}

func BenchmarkCompressed(b *testing.B) {
	objects := someObjects(1, 2000, 6600)
	frame := Fixed(7, "PodList", "v1", nil).Frame
	size := int64(0)
	for _, o := range objects {
		size += int64(len(o.Bytes))
	}
	for _, tt := range []struct {
		name string
		kept int64
	}{{"found", 64 << 20}, {"made", 0}} {
		b.Run(tt.name, func(b *testing.B) {
			c := newTestCompressor(b, tt.kept)
			_ = c.Write(io.Discard, frame, nil, objects, nil)
			if tt.kept > 0 {
				c.segments.Wait()
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				_ = c.Write(io.Discard, frame, nil, objects, nil)
			}
		})
	}
	b.Run("whole", func(b *testing.B) {
		z, _ := gzip.NewWriterLevel(io.Discard, gzipLevel)
		b.SetBytes(size)
		for b.Loop() {
			z.Reset(io.Discard)
			for _, o := range objects {
				_, _ = z.Write(o.Bytes)
			}
			_ = z.Close()
		}
	})
}

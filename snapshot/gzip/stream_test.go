package gzip

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestStream: what is written in parts of any size comes out of the standard library's reader.
func TestStream(t *testing.T) {
	c := newTestCompressor(t, 0)
	random := rand.New(rand.NewPCG(1, 2))
	for _, parts := range [][]int{nil, {0}, {1}, {1, 0, 100_000, 7, 1 << 20}, {maxStored, maxStored + 1}} {
		var want, out bytes.Buffer
		s := c.Stream(&out)
		for _, n := range parts {
			p := make([]byte, n)
			for i := range p {
				p[i] = "abc\x00\xff"[random.IntN(5)]
			}
			want.Write(p)
			if written, err := s.Write(p); written != n || err != nil {
				t.Fatalf("%d of %d bytes, %v", written, n, err)
			}
		}
		expect.NoError(t, s.Close())
		unzip, err := gzip.NewReader(&out)
		expect.NoError(t, err)
		unzip.Multistream(false)
		got, err := io.ReadAll(unzip) // checks length and checksum, too
		if err != nil || !bytes.Equal(got, want.Bytes()) || out.Len() > 0 {
			t.Errorf("%v: %d bytes of %d, %d left, %v", parts, len(got), want.Len(), out.Len(), err)
		}
	}
	if got := c.Stats().Compressed; got != 1+1+100_000+7+1<<20+2*maxStored+1 {
		t.Errorf("%d bytes were counted", got)
	}
}

// TestStreamToNobody: it ends at the first error.
func TestStreamToNobody(t *testing.T) {
	c := newTestCompressor(t, 0)
	s := c.Stream(&brokenWriter{left: len(gzipHeader)})
	if _, err := s.Write([]byte("x")); !errors.Is(err, errBroken) {
		t.Errorf("the first write: %v", err)
	}
	compressed := c.Stats().Compressed
	if n, err := s.Write([]byte("x")); n != 0 || !errors.Is(err, errBroken) {
		t.Errorf("the next: %d, %v", n, err)
	}
	if err := s.Close(); !errors.Is(err, errBroken) {
		t.Errorf("the end: %v", err)
	}
	if c.Stats().Compressed != compressed {
		t.Error("it is compressed still")
	}
}

package gzip

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
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
		if got := readMember(t, &out); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%v: %d bytes of %d", parts, len(got), want.Len())
		}
	}
}

type brokenWriter struct{ left int }

var errBroken = errors.New("the client has gone")

func (b *brokenWriter) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// TestNobodyReads: what is written, a list or a stream, ends at the first error.
func TestNobodyReads(t *testing.T) {
	c := newTestCompressor(t, 0)
	err := c.Write(&brokenWriter{left: 10_000}, samples.Envelope("PodList", "v1"), nil, newObjects(1, 100, 6600), nil)
	if !errors.Is(err, errBroken) {
		t.Errorf("a list: %v", err)
	}
	s := c.Stream(&brokenWriter{left: len(gzipHeader)})
	if _, err := s.Write([]byte("x")); !errors.Is(err, errBroken) {
		t.Errorf("the first write: %v", err)
	}
	if n, err := s.Write([]byte("x")); n != 0 || !errors.Is(err, errBroken) {
		t.Errorf("the next: %d, %v", n, err)
	}
	if err := s.Close(); !errors.Is(err, errBroken) {
		t.Errorf("the end: %v", err)
	}
}

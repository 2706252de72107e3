package gzip

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestStream: a client reads the bytes that were written to a Stream, in writes of whatever sizes.
func TestStream(t *testing.T) {
	c := newTestCompressor(t, 0)
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "abc\x00\xff"                                                                          // Text of so few different bytes can be compressed.
	for _, sizes := range [][]int{nil, {0}, {1}, {1, 0, 100_000, 7, 1 << 20}, {maxStored, maxStored + 1}} { // of the writes, in bytes
		var want, out bytes.Buffer
		s := c.NewStream(&out)
		for _, n := range sizes {
			p := make([]byte, n)
			for i := range p {
				p[i] = alphabet[random.IntN(len(alphabet))]
			}
			want.Write(p)
			if written, err := s.Write(p); written != n || err != nil {
				t.Fatalf("writes of %d bytes: got %d and error %v, want %d", sizes, written, err, n)
			}
		}
		expect.NoError(t, s.Close())
		if got := readMember(t, &out); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("writes of %d bytes: a client reads %d bytes, not the %d that were written", sizes, len(got), want.Len())
		}
	}
}

var errBroken = errors.New("the client has gone")

// brokenWriter fails at the Write that has more bytes than room is left for.
type brokenWriter struct{ room int }

func (b *brokenWriter) Write(p []byte) (int, error) {
	b.room -= len(p)
	if b.room < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// TestBrokenConnection: Compressor.Write and all methods of Stream return the first error of their writer.
func TestBrokenConnection(t *testing.T) {
	c := newTestCompressor(t, 0)
	const room = 10_000 // less than the compressed objects
	objects := newObjects(1, 100, podSize)
	err := c.Write(&brokenWriter{room: room}, envelope, nil, objects, nil)
	if !errors.Is(err, errBroken) {
		t.Errorf("Compressor.Write: got error %v, want %v", err, errBroken)
	}
	s := c.NewStream(&brokenWriter{room: len(gzipHeader)})
	if _, err := s.Write([]byte("x")); !errors.Is(err, errBroken) {
		t.Errorf("the first Write of a Stream: got error %v, want %v", err, errBroken)
	}
	if n, err := s.Write([]byte("x")); n != 0 || !errors.Is(err, errBroken) {
		t.Errorf("the next Write of a Stream: got %d and error %v, want 0 and %v", n, err, errBroken)
	}
	if err := s.Close(); !errors.Is(err, errBroken) {
		t.Errorf("Stream.Close: got error %v, want %v", err, errBroken)
	}
}

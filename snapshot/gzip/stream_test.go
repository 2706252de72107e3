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
	// Text of so few different bytes can be compressed.
	const alphabet = "abc\x00\xff"
	// The sizes of the writes to one Stream, in bytes.
	for _, sizes := range [][]int{nil, {0}, {1}, {1, 0, 100_000, 7, 1 << 20}, {maxStored, maxStored + 1}} {
		var want, out bytes.Buffer
		s := c.NewStream(&out)
		for _, n := range sizes {
			text := make([]byte, n)
			for i := range text {
				text[i] = alphabet[random.IntN(len(alphabet))]
			}
			want.Write(text)
			if written, err := s.Write(text); written != n || err != nil {
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

// brokenWriter accepts writes until one has more bytes than room.
type brokenWriter struct{ room int } // the number of bytes that it still accepts

// Write implements io.Writer.
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
	var noHead, noTail []byte
	err := c.Write(&brokenWriter{room: room}, envelope, noHead, objects, noTail)
	if !errors.Is(err, errBroken) {
		t.Errorf("Compressor.Write: got error %v, want %v", err, errBroken)
	}
	s := c.NewStream(&brokenWriter{room: len(gzipHeader)}) // nothing after the header
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

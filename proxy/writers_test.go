package proxy

import (
	"bytes"
	"testing"
)

// TestWritersAreBounded: only so many answers are written in large pieces at a time.
func TestWritersAreBounded(t *testing.T) {
	var pool writerPool
	var out bytes.Buffer
	for size, want := range map[int]int{
		0: leastWriteSize, 100: leastWriteSize, leastWriteSize + 1: 4 * leastWriteSize, 40 << 10: writeSize, largeWriteSize: writeSize,
	} {
		if w := pool.get(&out, size); w.Size() != want {
			t.Errorf("an answer of %d bytes gets a buffer of %d", size, w.Size())
		}
	}
	var taken []pooledWriter
	for i := range largeWriters + 2 {
		w := pool.get(&out, largeWriteSize+1)
		want := largeWriteSize
		if i >= largeWriters {
			want = writeSize
		}
		if w.Size() != want {
			t.Fatalf("answer %d gets %d bytes, want %d", i, w.Size(), want)
		}
		taken = append(taken, w)
	}
	_, _ = taken[0].WriteString("lost")
	for _, w := range taken {
		w.release()
	}
	w := pool.get(&out, largeWriteSize+1)
	if w.Size() != largeWriteSize || w.Buffered() != 0 {
		t.Errorf("after all were released: %d bytes, of which %d are in use", w.Size(), w.Buffered())
	}
	if out.Len() > 0 {
		t.Errorf("what was not flushed was written: %q", &out)
	}
}

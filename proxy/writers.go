package proxy

import (
	"bufio"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// leastWriteSize is how many bytes of the smallest answers are handed to the connection at once.
	// Larger ones have buffers of 4 and 16 times that: for their bytes there is room, in
	// --max-inflight-bytes, and a buffer that no answer fills would be memory beside it.
	leastWriteSize = 4 << 10
	// writeSize is the same if many large answers are being written.
	writeSize = leastWriteSize << (2 * (sizes - 2))
	// largeWriteSize is the same for a large answer: over HTTP/1.1, net/http puts the beginning of
	// each write into a TLS record of its own, of 4 KiB, and the rest into full records.
	largeWriteSize = 256 << 10
	// largeWriters is how many answers may use largeWriteSize at a time, since each then takes 256
	// KiB.
	largeWriters = 64
	// sizes is how many sizes of buffers there are, each four times the one before.
	sizes = 4
)

// writerPool keeps writers for reuse. It is safe for concurrent use.
type writerPool struct {
	bySize [sizes]sync.Pool
	inUse  atomic.Int64 // of the largest
}

// pooledWriter is a buffered writer that must be released.
type pooledWriter struct {
	*bufio.Writer
	pool *writerPool
	size int // its place in bySize
}

// get returns a writer to w for an answer of that size.
func (p *writerPool) get(w io.Writer, size int) pooledWriter {
	out := pooledWriter{pool: p}
	for out.size < sizes-2 && size > leastWriteSize<<(2*out.size) {
		out.size++
	}
	if size > largeWriteSize {
		if p.inUse.Add(1) <= largeWriters {
			out.size++
		} else {
			p.inUse.Add(-1)
		}
	}
	if kept, ok := p.bySize[out.size].Get().(*bufio.Writer); ok {
		kept.Reset(w)
		out.Writer = kept
	} else {
		out.Writer = bufio.NewWriterSize(w, leastWriteSize<<(2*out.size))
	}
	return out
}

// release gives the writer back. What it has not written is lost.
func (w pooledWriter) release() {
	w.Reset(nil)
	if w.size == sizes-1 {
		w.pool.inUse.Add(-1)
	}
	w.pool.bySize[w.size].Put(w.Writer)
}

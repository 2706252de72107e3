package proxy

import (
	"bufio"
	"io"
	"sync"
	"sync/atomic"
)

// Answers are written through buffers, each of which is handed to the connection at once. They have four
// sizes, each four times the one before. An answer gets the smallest buffer that holds it, since only its own
// bytes count in --max-inflight-bytes. A longer answer gets a buffer of writeSize. Only some that are longer
// than largeWriteSize get the largest: over HTTP/1.1, net/http puts the beginning of each write into a TLS
// record of its own, of 4 KiB, and the rest into full records.
const (
	sizes          = 4
	leastWriteSize = 4 << 10
	writeSize      = leastWriteSize << (2 * (sizes - 2))
	largeWriteSize = leastWriteSize << (2 * largest)
	// largest is the index of the largest size.
	largest = sizes - 1
	// largeWriters is the number of writers of that size that may be in use at a time.
	largeWriters = 64
)

// writerPool keeps writers for reuse. It is safe for concurrent use.
type writerPool struct {
	bySize [sizes]sync.Pool
	inUse  atomic.Int64 // the number of largest writers in use
}

// pooledWriter is a buffered writer that must be released.
type pooledWriter struct {
	*bufio.Writer
	pool  *writerPool
	place int // the index in bySize
}

// get returns a writer to w for an answer of that many bytes.
func (p *writerPool) get(w io.Writer, bytes int) pooledWriter {
	out := pooledWriter{pool: p}
	for bytes > leastWriteSize<<(2*out.place) && out.place < largest-1 {
		out.place++
	}
	if bytes > largeWriteSize {
		if p.inUse.Add(1) <= largeWriters {
			out.place = largest
		} else {
			p.inUse.Add(-1)
		}
	}
	if kept, ok := p.bySize[out.place].Get().(*bufio.Writer); ok {
		kept.Reset(w)
		out.Writer = kept
	} else {
		out.Writer = bufio.NewWriterSize(w, leastWriteSize<<(2*out.place))
	}
	return out
}

// release gives the writer back. Bytes that were not flushed are lost.
func (w pooledWriter) release() {
	w.Reset(nil)
	if w.place == largest {
		w.pool.inUse.Add(-1)
	}
	w.pool.bySize[w.place].Put(w.Writer)
}

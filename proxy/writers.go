package proxy

import (
	"bufio"
	"io"
	"sync"
)

// An answer is written through a buffer, which goes to the connection in one write when it is full or flushed. An answer
// gets the smallest buffer that holds it: --max-inflight-bytes counts the bytes of the answer, not those of the buffer. An
// answer that no buffer holds gets one of the largest.
const (
	bufferSizes   = 3
	minBufferSize = 4 << 10
	// bufferGrowth is the ratio of two neighbouring sizes.
	bufferGrowth = 4
)

// writerPool keeps writers for reuse. It is safe for concurrent use.
type writerPool struct {
	// bySize has the writers of each size, in ascending order.
	bySize [bufferSizes]sync.Pool
}

// pooledWriter is a buffered writer that must be released.
type pooledWriter struct {
	*bufio.Writer
	pool *sync.Pool
}

// get returns a writer to w for an answer of length bytes.
func (p *writerPool) get(w io.Writer, length int) pooledWriter {
	index, size := 0, minBufferSize
	for size < length && index < bufferSizes-1 {
		index++
		size *= bufferGrowth
	}
	pool := &p.bySize[index]
	writer, ok := pool.Get().(*bufio.Writer)
	if !ok {
		writer = bufio.NewWriterSize(nil, size)
	}
	writer.Reset(w)
	return pooledWriter{Writer: writer, pool: pool}
}

// release returns the writer to its pool. Bytes that were not flushed are lost.
func (w pooledWriter) release() {
	w.Reset(nil)
	w.pool.Put(w.Writer)
}

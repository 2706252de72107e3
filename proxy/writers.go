package proxy

import (
	"bufio"
	"io"
	"slices"
	"sync"
)

// bufferSizes are the sizes of the buffers through which answers are written, in bytes. A buffer goes to the connection in one
// write when it is full or flushed.
var bufferSizes = [...]int{4 << 10, 16 << 10, 64 << 10}

// writerPool keeps buffered writers of each size for reuse. It is safe for concurrent use.
type writerPool [len(bufferSizes)]sync.Pool

// get returns a writer to w for an answer of length bytes. The writer must be put back. Its buffer is the smallest that
// holds the answer, or else the largest: --max-inflight-bytes counts the bytes of the answer, and not those of the buffer.
func (p *writerPool) get(w io.Writer, length int) *bufio.Writer {
	i := 0
	for i < len(p)-1 && bufferSizes[i] < length {
		i++
	}
	writer, ok := p[i].Get().(*bufio.Writer)
	if !ok {
		writer = bufio.NewWriterSize(nil, bufferSizes[i])
	}
	writer.Reset(w)
	return writer
}

// put returns a writer to the pool. Bytes that were not flushed are lost.
func (p *writerPool) put(writer *bufio.Writer) {
	writer.Reset(nil)
	p[slices.Index(bufferSizes[:], writer.Size())].Put(writer)
}

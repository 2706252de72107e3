package proxy

import (
	"bufio"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// writeSize is how many bytes of an answer are handed to the connection at once, if the answer is
	// small or many answers are being written.
	writeSize = 64 << 10
	// largeWriteSize is the same for a large answer: over HTTP/1.1, net/http puts the beginning of
	// each write into a TLS record of its own, of 4 KiB, and the rest into full records.
	largeWriteSize = 256 << 10
	// largeWriters is how many answers may use largeWriteSize at a time, since each then takes 256
	// KiB.
	largeWriters = 64
)

// writerPool keeps writers for reuse. It is safe for concurrent use.
type writerPool struct {
	small, large sync.Pool
	inUse        atomic.Int64 // of the large ones
}

// pooledWriter is a buffered writer that must be released.
type pooledWriter struct {
	*bufio.Writer
	pool  *writerPool
	large bool
}

// get returns a writer to w for an answer of that size.
func (p *writerPool) get(w io.Writer, size int) pooledWriter {
	out := pooledWriter{pool: p}
	if size > largeWriteSize {
		out.large = p.inUse.Add(1) <= largeWriters
		if !out.large {
			p.inUse.Add(-1)
		}
	}
	from, bytes := &p.small, writeSize
	if out.large {
		from, bytes = &p.large, largeWriteSize
	}
	if kept, ok := from.Get().(*bufio.Writer); ok {
		kept.Reset(w)
		out.Writer = kept
	} else {
		out.Writer = bufio.NewWriterSize(w, bytes)
	}
	return out
}

// release gives the writer back. What it has not written is lost.
func (w pooledWriter) release() {
	w.Reset(nil)
	if w.large {
		w.pool.inUse.Add(-1)
		w.pool.large.Put(w.Writer)
		return
	}
	w.pool.small.Put(w.Writer)
}

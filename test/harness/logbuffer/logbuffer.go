// Package logbuffer keeps what processes and loggers write, for unit tests and for those with a
// control plane.
package logbuffer

import (
	"bytes"
	"sync"
)

// Buffer keeps what is written. It may be written to and read by several goroutines.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written until now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

package forward

import "sync"

// copyBufferSize is the size in bytes of a buffer, as in io.Copy. Most watch events are smaller.
const copyBufferSize = 32 << 10

// copyBuffers is a [httputil.BufferPool]. Its zero value is ready for use.
type copyBuffers struct{ pool sync.Pool }

// Get returns a buffer of copyBufferSize bytes.
func (c *copyBuffers) Get() []byte {
	if b, ok := c.pool.Get().(*[copyBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, copyBufferSize)
}

// Put takes back a buffer from Get.
func (c *copyBuffers) Put(b []byte) {
	// A pointer, unlike a slice, goes into the pool without an allocation.
	c.pool.Put((*[copyBufferSize]byte)(b))
}

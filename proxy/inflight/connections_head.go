package inflight

import (
	"errors"
	"sync"
)

const (
	// headFree is how many bytes may come on any connection before there is a whole request: enough
	// for a usual handshake and a usual request header.
	headFree = 16 << 10
	// headUnit is the size of the pieces in which more than headFree is granted.
	headUnit = 64 << 10
	// headBudget bounds the sum of these pieces over all connections; one network may have half of
	// it. They can take up to four times as much memory: bytes are read into buffers that double, and
	// the smaller buffers are garbage until they are collected.
	headBudget = 32 << 20
)

var errUnfinished = errors.New("too much has come on the connections that is no whole request yet")

// head counts the bytes that have come on a connection without a request: parts of a handshake, or
// of a request header. net/http and crypto/tls bound these bytes for one connection, but a thousand
// connections can reach that bound at the same time. The bytes of a request's body are bounded
// elsewhere.
type head struct {
	limiter *Limiter[Network]
	network Network

	mu     sync.Mutex
	active bool // there is a request
	size   int
	grants []Grant[Network]
}

// more counts n bytes that have come, and says whether there is room for them.
func (h *head) more(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active {
		return true
	}
	h.size += n
	for h.size > headFree+len(h.grants)*headUnit {
		grant, ok := h.limiter.tryAcquire(h.network, headUnit)
		if !ok {
			return false
		}
		h.grants = append(h.grants, grant)
	}
	return true
}

// reset starts the count again at zero; if active, there is a request now and nothing is counted.
func (h *head) reset(active bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active, h.size = active, 0
	for i := range h.grants {
		h.grants[i].Release()
	}
	h.grants = nil
}

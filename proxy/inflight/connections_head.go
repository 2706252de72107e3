package inflight

import (
	"errors"
	"sync"
)

const (
	// headFree is what may come on any connection before there is a request: a handshake and the
	// head of a request, as they mostly are.
	headFree = 16 << 10
	// headUnit is in what pieces more than that is granted.
	headUnit = 64 << 10
	// headBudget bounds these pieces, of all connections. Memory holds up to four times as much:
	// what has come is kept in buffers that double, and those before are garbage. A network may
	// have half of it.
	headBudget = 32 << 20
)

var errUnfinished = errors.New("too much has come on the connections that is no whole request yet")

// head counts what has come on a connection that has no request: parts of a handshake, or of the
// head of a request. net/http and crypto/tls bound what one of them takes, but a thousand
// connections can have the most of that at a time. What belongs to a request is bounded elsewhere.
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
		grant, ok := h.limiter.TryAcquire(h.network, headUnit)
		if !ok {
			return false
		}
		h.grants = append(h.grants, grant)
	}
	return true
}

// reset begins to count anew, unless there is a request now.
func (h *head) reset(active bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active, h.size = active, 0
	for i := range h.grants {
		h.grants[i].Release()
	}
	h.grants = nil
}

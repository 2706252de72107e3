package hop

import (
	"context"
	"sync"
)

// Gate lets pass or holds back, as a test wants it. The zero Gate is open. Any number of goroutines
// may use it.
type Gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while open; Open closes it
}

// Shut holds back who comes from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// Open lets all pass who wait, and who come.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// Pass waits while the gate is shut. It gives up with ctx, and returns its error then.
func (g *Gate) Pass(ctx context.Context) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return nil
	}
	select {
	case <-shut:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package harness

import (
	"slices"
	"sync"
	"testing"
)

// Proxies is the listproxies that a test has running. The zero Proxies is empty. It is for any
// number of goroutines.
type Proxies struct {
	mu      sync.Mutex
	running []*Proxy
}

// Add adds one that runs.
func (g *Proxies) Add(p *Proxy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = append(g.running, p)
}

// Remove takes one out, which is for its caller to end, or has been ended.
func (g *Proxies) Remove(p *Proxy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = slices.DeleteFunc(g.running, func(other *Proxy) bool { return other == p })
}

// All returns those that run, in the order in which they were added.
func (g *Proxies) All() []*Proxy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.running)
}

// Stop stops all of them at the end of a test. What was wrong with one of them, a data race or a
// panic, is an error of the test; if there was one before, their logs are told.
func (g *Proxies) Stop(t testing.TB) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.running {
		if t.Failed() {
			t.Logf("listproxy's log:\n%s", p.Told())
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	g.running = nil
}

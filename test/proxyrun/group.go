package proxyrun

import (
	"slices"
	"sync"
	"testing"
)

// Group is the listproxies that a test has running. The zero Group is empty. It is for any number of
// goroutines.
type Group struct {
	mu      sync.Mutex
	running []*Proxy
}

// Add adds one that runs.
func (g *Group) Add(p *Proxy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = append(g.running, p)
}

// Remove takes one out, which is for its caller to end, or has been ended.
func (g *Group) Remove(p *Proxy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = slices.DeleteFunc(g.running, func(other *Proxy) bool { return other == p })
}

// All returns those that run, in the order in which they were added.
func (g *Group) All() []*Proxy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.running)
}

// Stop stops all of them at the end of a test. What was wrong with one of them, a data race or a panic,
// is an error of the test; if there was one before, their logs are told.
func (g *Group) Stop(t testing.TB) {
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

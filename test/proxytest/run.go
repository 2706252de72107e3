package proxytest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// Bubble runs a subtest in a synctest bubble.
func Bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// RunInBubble starts run in the test's synctest bubble, and returns when the bubble is idle. When the test ends, it cancels
// run's context and waits until run returns.
func RunInBubble(t *testing.T, run func(ctx context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	synctest.Wait()
}

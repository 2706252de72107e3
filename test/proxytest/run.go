package proxytest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// Bubble runs a subtest in a bubble of synctest.
func Bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// RunInBubble runs run in the test's bubble of synctest, and returns when nothing moves any more.
// When the test ends, it ends run's context and waits for run to return.
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

package snapshot

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestCallLeavesNothing: a call's context ends with it, and one that is stopped does not speak any
// more.
func TestCallLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		ask := func(ctx context.Context) (int, error) {
			context.AfterFunc(ctx, func() { ended = true })
			return 1, nil
		}
		var c call[int]
		c.start(t.Context(), ask)
		if a := <-c.outcome; a.value != 1 || a.err != nil {
			t.Errorf("got %+v", a)
		}
		c.clear()
		synctest.Wait()
		if !ended {
			t.Error("the context of a call that is over still lives")
		}
		c.start(t.Context(), func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		c.stop()
		if c.outcome != nil {
			t.Error("a call that was stopped is still under way")
		}
		c.stop()
	})
}

package proxy

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWarmup: an eager collection is warm once it has a state, and not before. If it loses the state
// later, the replica stays ready.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		fails := func(is bool) {
			w.cut(func() { w.failing = is })
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		}
		w.failing = true
		eager := []EagerCollection{{
			GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Representation: media.JSON,
		}}
		h := w.handler
		warmup := NewWarmup(eager, h.Cluster, h.Collections, proxytest.DiscardLog())
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { warmup.Run(ctx); close(over) }()
		defer func() { stop(); <-over }()
		for _, step := range []struct{ fails, warm bool }{{true, false}, {false, true}, {true, true}} {
			fails(step.fails)
			if all := warmup.Stats(); len(all) != 1 || (all[0].Waits == "") != step.warm {
				t.Errorf("loads fail: %t: %+v", step.fails, all)
			} else if !step.warm && !strings.Contains(all[0].Waits, "EOF") {
				t.Errorf("an operator reads %q, not why the load failed", all[0].Waits)
			}
		}
	})
}

package proxy

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
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
			if all := warmup.Stats(); len(all) != 1 || all[0].Ready != step.warm {
				t.Errorf("loads fail: %t: %+v", step.fails, all)
			} else if !step.warm && !strings.Contains(all[0].Waits, "EOF") {
				t.Errorf("an operator reads %q, not why the load failed", all[0].Waits)
			}
		}
	})
}

// TestWarmupOfRefused: what kube-apiserver has refused for a minute keeps no replica from being ready, and whatever
// comes later, it stays ready.
func TestWarmupOfRefused(t *testing.T) {
	for why, advice := range refusalAdvice {
		var logged logbuffer.Buffer
		w := NewWarmup([]EagerCollection{{}}, nil, nil, slog.New(slog.NewTextHandler(&logged, nil)))
		begun := time.Now()
		for _, step := range []struct {
			at    time.Duration
			why   string
			ready bool
			lines int // in the log
		}{
			{why: why, lines: 1},
			{at: 30 * time.Second, why: string(reason.Warming), lines: 2},
			{at: 31 * time.Second, why: why, lines: 3},
			{at: 90 * time.Second, why: why, lines: 3},
			{at: 91 * time.Second, why: why, ready: true, lines: 4},
			{at: time.Hour, why: why, ready: true, lines: 4},
			{at: 2 * time.Hour, why: string(reason.Warming), ready: true, lines: 4},
			{at: 3 * time.Hour, ready: true, lines: 4},
			{at: 4 * time.Hour, why: why, ready: true, lines: 4},
			{at: 5 * time.Hour, why: why, ready: true, lines: 5},
		} {
			w.record(&w.stats[0], step.why, begun.Add(step.at))
			if s := w.Stats()[0]; s.Ready != step.ready || s.Waits != step.why || strings.Count(logged.String(), "\n") != step.lines {
				t.Errorf("%s, after %v: %+v, and the log has\n%s", why, step.at, s, logged.String())
			}
		}
		if strings.Count(logged.String(), "do=\""+advice) != 2 {
			t.Errorf("it is not said what to do:\n%s", logged.String())
		}
	}
}

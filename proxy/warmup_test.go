package proxy

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWarmup: an eager collection is ready once it has a state, and stays ready if it loses the state.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newModelWorld(t)
		world.loadsFail = true
		eager := []EagerCollection{{GroupVersionResource: modelWidgets.GroupVersionResource, Representation: modelWidgets.Representation}}
		warmup := NewWarmup(eager, world.handler.Cluster, world.handler.Collections, proxytest.DiscardLog())
		proxytest.RunInBubble(t, warmup.Run)
		for _, step := range []struct{ loadsFail, wantReady bool }{
			{loadsFail: true, wantReady: false}, // never loaded
			{loadsFail: false, wantReady: true}, // loaded
			{loadsFail: true, wantReady: true},  // the state is lost
		} {
			world.changeAndCutFeeds(func() { world.loadsFail = step.loadsFail })
			time.Sleep(2 * time.Minute) // enough for a load
			synctest.Wait()
			got := warmup.Stats()[0]
			if got.Ready != step.wantReady {
				t.Errorf("loads fail %t: got ready %t, want %t", step.loadsFail, got.Ready, step.wantReady)
			}
			if !step.wantReady {
				expect.Says(t, got.WhyNotLoaded, "EOF")
			}
		}
	})
}

// TestWarmupOfRefusedCollection: an eager collection that kube-apiserver has refused to list for a minute is ready, and stays
// ready. As long as it is not ready, each change of the reason is logged once. Each refusal that lasts a minute is logged once,
// with advice.
func TestWarmupOfRefusedCollection(t *testing.T) {
	for refusal, advice := range refusalAdvice {
		var logged logbuffer.Buffer
		warmup := NewWarmup([]EagerCollection{{}}, nil, nil, slog.New(slog.NewTextHandler(&logged, nil))) // record uses no cluster
		begun := time.Now()
		warming := string(reason.Warming)
		for _, step := range []struct {
			at           time.Duration // after the first step
			whyNotLoaded string        // "": the collection is loaded
			wantReady    bool
			wantLines    int // in the log
		}{
			{at: 0, whyNotLoaded: refusal, wantLines: 1},
			{at: 30 * time.Second, whyNotLoaded: warming, wantLines: 1},
			{at: 31 * time.Second, whyNotLoaded: refusal, wantLines: 1}, // the minute begins again
			{at: 90 * time.Second, whyNotLoaded: refusal},
			{at: 91 * time.Second, whyNotLoaded: refusal, wantReady: true, wantLines: 1}, // the minute is over
			{at: time.Hour, whyNotLoaded: refusal, wantReady: true},
			{at: 2 * time.Hour, whyNotLoaded: warming, wantReady: true},
			{at: 3 * time.Hour, whyNotLoaded: "", wantReady: true},
			{at: 4 * time.Hour, whyNotLoaded: refusal, wantReady: true}, // another minute begins
			{at: 5 * time.Hour, whyNotLoaded: refusal, wantReady: true, wantLines: 1},
		} {
			before := strings.Count(logged.String(), "\n")
			warmup.record(&warmup.states[0], step.whyNotLoaded, begun.Add(step.at))
			got := warmup.Stats()[0]
			expect.Same(t, step.whyNotLoaded, got.WhyNotLoaded)
			if got.Ready != step.wantReady {
				t.Errorf("%s, after %v: got ready %t, want %t", refusal, step.at, got.Ready, step.wantReady)
			}
			if lines := strings.Count(logged.String(), "\n") - before; lines != step.wantLines {
				t.Errorf("%s, after %v: got %d lines in the log, want %d", refusal, step.at, lines, step.wantLines)
			}
		}
		expect.Same(t, 2, strings.Count(logged.String(), "do=\""+advice))
	}
}

package proxy

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWarmup: an eager collection is ready once it has a state, and stays ready if it loses the state.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newModelWorld(t)
		setFailingAndWait := func(failing bool) {
			world.changeAndCutFeeds(func() { world.loadsFail = failing })
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		}
		world.loadsFail = true // also the first load
		eager := []EagerCollection{{
			GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Representation: media.JSON,
		}}
		h := world.handler
		warmup := NewWarmup(eager, h.Cluster, h.Collections, proxytest.DiscardLog())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { warmup.Run(ctx) })
		defer running.Wait()
		defer stop()
		for _, step := range []struct{ loadsFail, wantReady bool }{
			{loadsFail: true, wantReady: false}, {loadsFail: false, wantReady: true}, {loadsFail: true, wantReady: true},
		} {
			setFailingAndWait(step.loadsFail)
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

// TestWarmupOfRefused: an eager collection that kube-apiserver has refused for a minute is ready, and stays ready. Each change
// before it is ready is logged once, and each refusal that lasts a minute is logged with advice.
func TestWarmupOfRefused(t *testing.T) {
	for refusal, advice := range refusalAdvice {
		var logged logbuffer.Buffer
		warmup := NewWarmup([]EagerCollection{{}}, nil, nil, slog.New(slog.NewTextHandler(&logged, nil))) // record needs no cluster
		begun := time.Now()
		warming := string(reason.Warming)
		for _, step := range []struct {
			at         time.Duration
			why        string
			wantReady  bool
			wantLogged bool // a line
		}{
			{why: refusal, wantLogged: true},
			{at: 30 * time.Second, why: warming, wantLogged: true},
			{at: 31 * time.Second, why: refusal, wantLogged: true},
			{at: 90 * time.Second, why: refusal}, // for a second less than a minute
			{at: 91 * time.Second, why: refusal, wantReady: true, wantLogged: true},
			{at: time.Hour, why: refusal, wantReady: true},
			{at: 2 * time.Hour, why: warming, wantReady: true},
			{at: 3 * time.Hour, wantReady: true},
			{at: 4 * time.Hour, why: refusal, wantReady: true},                   // not for a minute yet
			{at: 5 * time.Hour, why: refusal, wantReady: true, wantLogged: true}, // for more than a minute
		} {
			before := strings.Count(logged.String(), "\n")
			warmup.record(&warmup.states[0], step.why, begun.Add(step.at))
			got := warmup.Stats()[0]
			expect.Same(t, step.why, got.WhyNotLoaded)
			if got.Ready != step.wantReady {
				t.Errorf("%s, after %v: got ready %t, want %t", refusal, step.at, got.Ready, step.wantReady)
			}
			if lines := strings.Count(logged.String(), "\n") - before; (lines == 1) != step.wantLogged || lines > 1 {
				t.Errorf("%s, after %v: got %d lines in the log, want one: %t", refusal, step.at, lines, step.wantLogged)
			}
		}
		expect.Same(t, 2, strings.Count(logged.String(), "do=\""+advice))
	}
}

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
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWarmup: an eager collection is ready once it has a state, and stays ready if it loses the state.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		setFailing := func(failing bool) {
			w.cut(func() { w.failing = failing })
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
		var running sync.WaitGroup
		running.Go(func() { warmup.Run(ctx) })
		defer running.Wait()
		defer stop()
		for _, step := range []struct{ loadsFail, wantReady bool }{
			{loadsFail: true, wantReady: false}, {loadsFail: false, wantReady: true}, {loadsFail: true, wantReady: true},
		} {
			setFailing(step.loadsFail)
			if all := warmup.Stats(); len(all) != 1 || all[0].Ready != step.wantReady {
				t.Errorf("loads fail %t: got %+v, want ready %t", step.loadsFail, all, step.wantReady)
			} else if !step.wantReady && !strings.Contains(all[0].WhyNotLoaded, "EOF") {
				t.Errorf("loads fail: got the reason %q, want the error EOF", all[0].WhyNotLoaded)
			}
		}
	})
}

// TestWarmupOfRefused: an eager collection that kube-apiserver has refused for a minute is ready, and stays ready. Each change
// before it is ready is logged once, and each refusal that lasts a minute is logged with advice.
func TestWarmupOfRefused(t *testing.T) {
	for why, advice := range refusalAdvice {
		var logged logbuffer.Buffer
		w := NewWarmup([]EagerCollection{{}}, nil, nil, slog.New(slog.NewTextHandler(&logged, nil)))
		begun := time.Now()
		for _, step := range []struct {
			at        time.Duration
			why       string
			wantReady bool
			wantLines int // in the log, in all
		}{
			{why: why, wantLines: 1},
			{at: 30 * time.Second, why: string(reason.Warming), wantLines: 2},
			{at: 31 * time.Second, why: why, wantLines: 3},
			{at: 90 * time.Second, why: why, wantLines: 3},
			{at: 91 * time.Second, why: why, wantReady: true, wantLines: 4},
			{at: time.Hour, why: why, wantReady: true, wantLines: 4},
			{at: 2 * time.Hour, why: string(reason.Warming), wantReady: true, wantLines: 4},
			{at: 3 * time.Hour, wantReady: true, wantLines: 4},
			{at: 4 * time.Hour, why: why, wantReady: true, wantLines: 4},
			{at: 5 * time.Hour, why: why, wantReady: true, wantLines: 5},
		} {
			w.record(&w.states[0], step.why, begun.Add(step.at))
			lines := strings.Count(logged.String(), "\n")
			if s := w.Stats()[0]; s.Ready != step.wantReady || s.WhyNotLoaded != step.why || lines != step.wantLines {
				t.Errorf("%s, after %v: got %+v, want ready %t and %d lines in the log:\n%s",
					why, step.at, s, step.wantReady, step.wantLines, logged.String())
			}
		}
		if strings.Count(logged.String(), "do=\""+advice) != 2 {
			t.Errorf("%s: want the advice %q twice in the log:\n%s", why, advice, logged.String())
		}
	}
}

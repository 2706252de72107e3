package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWatchesOutliveReopenings: while the stream of definitions is opened again, which takes an API
// server with too much to do longer than definitions are trusted, events wait and watches go on. They end if it takes too long,
// one by one, and if the definition was changed meanwhile: nothing that was in doubt is told then.
func TestWatchesOutliveReopenings(t *testing.T) {
	type world = modelWorld
	flow := func(w *world, _ *openWatch) { w.Flow(modelDefinitions) }
	for name, tt := range map[string]struct {
		breaks func(*world)
		after  time.Duration
		then   func(*world, *openWatch)
		told   int
		end    watch.Ending // "": it goes on
		// first and last are when it ends, since the event.
		first, last time.Duration
	}{
		"ended, listed late": {
			breaks: (*modelWorld).doubt, after: 20 * time.Second, then: flow, told: 1,
		},
		"cut, listed late": {
			breaks: func(w *world) { w.Stall(modelDefinitions); w.Cut(modelDefinitions) }, after: 20 * time.Second, then: flow, told: 1,
		},
		"too many requests": {
			breaks: func(w *world) {
				w.Answer(http.StatusTooManyRequests, "watch "+modelDefinitions, "list "+modelDefinitions)
				w.End(modelDefinitions)
			},
			after: 15 * time.Second, told: 1,
			then: func(w *world, _ *openWatch) { w.Answer(0, "watch "+modelDefinitions, "list "+modelDefinitions) },
		},
		"never": {
			breaks: (*modelWorld).doubt, after: 5 * time.Minute, then: flow,
			end: watch.EndLost, first: 30 * time.Second, last: 40*time.Second + time.Second,
		},
		"changed meanwhile": {
			breaks: (*modelWorld).doubt, after: 10 * time.Second,
			then: func(w *world, _ *openWatch) {
				w.change(modelDefinitions, w.redefined)
				w.Flow(modelDefinitions)
			},
			end: watch.EndLost, first: 10 * time.Second, last: 20 * time.Second,
		},
		"the client leaves": {
			breaks: (*modelWorld).doubt, after: 10 * time.Second,
			then: func(w *world, o *openWatch) { o.leave(); w.Flow(modelDefinitions) },
			end:  watch.EndGone, first: 10 * time.Second, last: 10 * time.Second,
		},
		"listproxy ends": {
			breaks: (*modelWorld).doubt, after: 10 * time.Second,
			then: func(w *world, _ *openWatch) { w.handler.Collections.EndWatches(0) },
			end:  watch.EndShutdown, first: 10 * time.Second, last: 10 * time.Second,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			out := newTold()
			o := w.open(t, out, "watch=true&timeoutSeconds=3600&resourceVersion="+now, "")
			defer o.leave()
			tt.breaks(w)
			time.Sleep(snapshot.Skew + time.Second)
			synctest.Wait()
			written := time.Since(o.begun)
			w.write()
			time.AfterFunc(tt.after, func() { tt.then(w, o) })
			time.Sleep(tt.after - time.Second)
			synctest.Wait()
			if early := out.String(); early != "" {
				t.Errorf("told while it was in doubt: %s", early)
			}
			end := o.end(t, 6*time.Minute)
			expect.Same(t, tt.end, end)
			if after := o.ended - written; end != "" && (after < tt.first || after > tt.last) {
				t.Errorf("it ended %v after the event", after)
			}
			if all := out.String(); strings.Count(all, "\n") != tt.told {
				t.Errorf("told %q", all)
			}
		})
	}
}

// TestNothingIsToldOfALostState: what is told may be lost while it is asked whether the resource is
// served as before, which can take a while.
func TestNothingIsToldOfALostState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.load(t)
		collection, why := w.handler.Collections.Use(modelWidgets)
		if why != reason.None {
			t.Fatal(why)
		}
		state, why := collection.Follow(t.Context(), 0, false, time.Second)
		if why != reason.None {
			t.Fatal(why)
		}
		out := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		s := &watchStream{request: r, control: http.NewResponseController(out), form: state.WatchForm()}
		s.ResponseWriter = out
		var asked atomic.Int32
		s.cursor = state.Watch(index.Query{}, watch.Options{After: state.Revision, Timeout: time.Hour, Defined: func() bool {
			asked.Add(1)
			w.drop()
			return true
		}})
		w.write()
		s.end = s.follow()
		s.cursor.Close(s.end)
		if s.end != watch.EndLost || asked.Load() == 0 || out.Body.Len() > 0 {
			t.Errorf("asked %d times, ended as %q, told %q", asked.Load(), s.end, out.Body)
		}
	})
}

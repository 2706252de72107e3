package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
)

// openWatch is a watch that is being answered from memory.
type openWatch struct {
	http.ResponseWriter
	world *modelWorld
	begun time.Time
	// leave is what its client does who goes.
	leave context.CancelFunc
	// done gives when it ended, since begun, and why it was not answered from memory if it was not.
	done  chan time.Duration
	why   reason.Reason
	ended time.Duration
}

// told is what a client was told, to be read while it is told more.
type told struct {
	*httptest.ResponseRecorder
	mu sync.Mutex
}

// Write implements io.Writer.
func (o *told) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ResponseRecorder.Write(p)
}

// String returns it.
func (o *told) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Body.String()
}

// answerReviews makes every review be answered at once.
func (w *modelWorld) answerReviews(t testing.TB) {
	t.Helper()
	go func() {
		for {
			select {
			case w.reviews <- struct{}{}:
			case <-t.Context().Done():
				return
			}
		}
	}()
}

// caller returns who sends a request that comes now.
func (w *modelWorld) caller(t *testing.T) caller {
	t.Helper()
	identity := authntest.Identify(authntest.New(t), "Bearer a")
	return caller{
		identity: identity, verdict: upstream.Accepted, flow: authn.FlowOf(identity, true, ""), lastProbe: w.handler.Collections.LastProbe(),
	}
}

// load makes the resource be in memory, and every review be answered at once.
func (w *modelWorld) load(t *testing.T) {
	t.Helper()
	w.answerReviews(t)
	if _, why := w.handler.Collections.Use(modelWidgets); why != reason.None {
		t.Fatal(why)
	}
	time.Sleep(20 * time.Second)
}

// open begins a request of a client that accepts an encoding. What is answered is written to out.
func (w *modelWorld) open(t *testing.T, out http.ResponseWriter, query, encoding string) *openWatch {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	o := &openWatch{ResponseWriter: out, world: w, begun: time.Now(), leave: leave, done: make(chan time.Duration, 1)}
	target := "/apis/example.com/v1/widgets?" + strings.Replace(query, now, strconv.Itoa(w.revision), 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Accept-Encoding", encoding)
	who := w.caller(t)
	handler := w.handler.Observer.Observe(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		list, found, why := w.handler.decide(r, who)
		if o.why = why; why == reason.None {
			o.why = serveWhole(w.handler, out, r, who, list, &found)
		}
	}), w.handler.Log)
	go func() {
		handler.ServeHTTP(out, r)
		o.done <- time.Since(o.begun)
	}()
	synctest.Wait()
	return o
}

// end waits for the end, at most until then after the beginning, and returns why it came, by what is
// counted; "" if it has not come.
func (o *openWatch) end(t *testing.T, until time.Duration) watch.Ending {
	t.Helper()
	select {
	case o.ended = <-o.done:
	case <-time.After(until - time.Since(o.begun)):
		synctest.Wait() // what was written may be read now
		return ""
	}
	if o.why != "" {
		t.Fatalf("not from memory: %s", o.why)
	}
	for range 10 { // it may have to be loaded again first
		if _, why := o.world.handler.Collections.Use(modelWidgets); why == reason.None {
			break
		}
		time.Sleep(20 * time.Second)
	}
	for _, c := range o.world.handler.Collections.Stats() {
		for why := range c.Watches.Ended {
			return why
		}
	}
	t.Fatal("it is not counted that it has ended")
	return ""
}

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
			breaks: func(w *world) { w.Stall(modelDefinitions); w.End(modelDefinitions) }, after: 20 * time.Second, then: flow, told: 1,
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
			breaks: func(w *world) { w.Stall(modelDefinitions); w.End(modelDefinitions) }, after: 5 * time.Minute, then: flow,
			end: watch.EndLost, first: 30 * time.Second, last: 40*time.Second + time.Second,
		},
		"changed meanwhile": {
			breaks: func(w *world) { w.Stall(modelDefinitions); w.End(modelDefinitions) }, after: 10 * time.Second,
			then: func(w *world, _ *openWatch) {
				w.mu.Lock()
				w.told++
				w.epochs.Definition++
				changed := w.definition()
				w.mu.Unlock()
				w.Mu.Lock()
				w.Collections[modelDefinitions].Objects = []string{changed}
				w.Mu.Unlock()
				w.Flow(modelDefinitions)
			},
			end: watch.EndLost, first: 10 * time.Second, last: 20 * time.Second,
		},
		"the client leaves": {
			breaks: func(w *world) { w.Stall(modelDefinitions); w.End(modelDefinitions) }, after: 10 * time.Second,
			then: func(w *world, o *openWatch) { o.leave(); w.Flow(modelDefinitions) },
			end:  watch.EndGone, first: 10 * time.Second, last: 10 * time.Second,
		},
		"listproxy ends": {
			breaks: func(w *world) { w.Stall(modelDefinitions); w.End(modelDefinitions) }, after: 10 * time.Second,
			then: func(w *world, _ *openWatch) { w.handler.Collections.EndWatches(0) },
			end:  watch.EndShutdown, first: 10 * time.Second, last: 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				w.load(t)
				out := &told{ResponseRecorder: httptest.NewRecorder()}
				o := w.open(t, out, "watch=true&timeoutSeconds=3600&resourceVersion="+now, "")
				defer o.leave()
				tt.breaks(w)
				time.Sleep(snapshot.Skew + time.Second)
				synctest.Wait()
				written := time.Since(o.begun)
				w.write(1)
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
			w.handler.Collections.Invalidate(snapshot.Invalidation{Cause: snapshot.Mismatch, Scope: snapshot.OfCollection(modelWidgets)})
			return true
		}})
		w.write(1)
		s.end = s.follow()
		s.cursor.Close(s.end)
		if s.end != watch.EndLost || asked.Load() == 0 || out.Body.Len() > 0 {
			t.Errorf("asked %d times, ended as %q, told %q", asked.Load(), s.end, out.Body)
		}
	})
}

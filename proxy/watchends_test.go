package proxy

import (
	stdgzip "compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// slowReader is a client that takes its time for the first bytes that it gets.
type slowReader struct {
	*httptest.ResponseRecorder
	takes time.Duration
}

// Write implements http.ResponseWriter.
func (s *slowReader) Write(p []byte) (int, error) {
	time.Sleep(s.takes)
	s.takes = 0
	return s.ResponseRecorder.Write(p)
}

// TestInterruptedStates: a client reads the state slowly with which its watch begins. What happens
// meanwhile that ends the watch ends the state, too: nothing more of it is written than the event
// under way.
func TestInterruptedStates(t *testing.T) {
	const reads = 25 * time.Second // longer than what is left of a lost span is told
	for name, tt := range map[string]struct {
		timeout int // in seconds
		// happens after five seconds.
		happens func(*modelWorld, *openWatch)
		end     watch.Ending // "": it goes on
	}{
		"nothing":     {timeout: 3600, happens: func(*modelWorld, *openWatch) {}},
		"the timeout": {timeout: 10, happens: func(*modelWorld, *openWatch) {}, end: watch.EndTimeout},
		"a shutdown": {timeout: 3600, end: watch.EndShutdown, happens: func(w *modelWorld, _ *openWatch) {
			w.handler.Collections.EndWatches(0)
		}},
		"the client leaves": {timeout: 3600, end: watch.EndGone, happens: func(_ *modelWorld, o *openWatch) { o.leave() }},
		"the span is lost": {timeout: 3600, end: watch.EndLost, happens: func(w *modelWorld, _ *openWatch) {
			w.cut(func() { w.revision++ })
		}},
		"the state is dropped":   {timeout: 3600, end: watch.EndLost, happens: func(w *modelWorld, _ *openWatch) { w.drop() }},
		"the definition changed": {timeout: 3600, end: watch.EndLost, happens: func(w *modelWorld, _ *openWatch) { w.redefine() }},
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			proxytest.Bubble(t, name+", "+encoding, func(t *testing.T) {
				w := newModelWorld(t)
				w.compresses, w.bulk = true, randomText(600<<10) // more than is written at once
				compressor, err := gzip.NewCompressor(0)
				expect.NoError(t, err)
				w.handler.Compressor = compressor
				w.load(t)
				out := &slowReader{httptest.NewRecorder(), reads}
				o := w.open(t, out, fmt.Sprint(streaming, "&resourceVersion=0&timeoutSeconds=", tt.timeout), encoding)
				defer o.leave()
				time.AfterFunc(5*time.Second, func() { tt.happens(w, o) })
				end := o.end(t, reads+time.Second)
				expect.Same(t, tt.end, end)
				text := plain(t, out.ResponseRecorder)
				whole := strings.Contains(text, "initial-events-end")
				if whole != (tt.end == "") || !strings.HasSuffix(text, "}\n") {
					t.Errorf("%d bytes are written, with the end of the state: %t", len(text), whole)
				}
			})
		}
	}
}

// TestNothingOfADoubtfulState: once it is in doubt, no byte of an object follows, with gzip or
// without: what waits to be handed on is left out, or has been handed on before.
func TestNothingOfADoubtfulState(t *testing.T) {
	const size, objects = 2 << 10, 500
	var state []*index.Object
	for i := range uint64(objects) {
		state = append(state, index.NewObject(i+1, fmt.Sprint(i), 1, []byte(`{"data":"`+randomText(size)+`"}`)))
	}
	compressor, err := gzip.NewCompressor(0)
	expect.NoError(t, err)
	for _, compressed := range []bool{false, true} {
		for looks := range 4 {
			proxytest.Bubble(t, fmt.Sprintf("gzip %t, doubt at look %d", compressed, looks), func(t *testing.T) {
				out, hub := httptest.NewRecorder(), benchHub(1, size)
				asked, before := 0, 0
				stands := func() bool {
					if asked++; asked == looks+1 {
						before = out.Body.Len()
					}
					return asked <= looks
				}
				s := hubStream(hub, stands, out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				defer s.cursor.Close(watch.EndGone)
				s.handler, s.compressed, s.page = &Handler{Compressor: compressor}, compressed, &body{objects: state, size: objects * size}
				end := s.writeInitial()
				const endOfMember = 100 // at most, with its head; an object has more
				if more := out.Body.Len() - before; end != watch.EndLost || more > endOfMember || !compressed && more > 0 {
					t.Errorf("it ends as %q, %d bytes follow", end, more)
				}
				if compressed {
					out.Header().Set("Content-Encoding", "gzip")
				}
				text := plain(t, out)
				if got := strings.Count(text, "\n"); looks > 0 && (got == 0 || got != s.events) {
					t.Errorf("%d events are written, and said to be %d", got, s.events)
				}
				if s.plain != len(text) {
					t.Errorf("%d bytes are written, and said to be %d", len(text), s.plain)
				}
			})
		}
	}
}

// TestInterruptedStatesEndApart: where the states of many new watches are in doubt, their room is free
// at once, and they end later: one by one, and none in its first second, after which client-go would
// list.
func TestInterruptedStatesEndApart(t *testing.T) {
	const (
		clients = 20
		reads   = 500 * time.Millisecond
		room    = 100 << 20
	)
	for name, tt := range map[string]struct {
		before, happens func(*modelWorld)
		free            time.Duration // when all their room is
	}{
		"the state is dropped": {func(*modelWorld) {}, (*modelWorld).drop, reads},
		"definitions are not known": {func(w *modelWorld) {
			w.doubt()
			time.AfterFunc(time.Minute, func() { w.Flow(modelDefinitions) })
			time.Sleep(snapshot.Skew - reads/2)
		}, func(*modelWorld) {}, reads + 3*time.Second},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.bulk = randomText(100 << 10) // more than is written at once
			w.bound(t, room, 0)
			w.load(t)
			tt.before(w)
			outs, watches := make([]*slowReader, clients), make([]*openWatch, clients)
			for i := range watches {
				outs[i] = &slowReader{httptest.NewRecorder(), reads}
				watches[i] = w.open(t, outs[i], streaming+"&timeoutSeconds=3600&resourceVersion=0", "identity")
				defer watches[i].leave()
			}
			tt.happens(w)
			time.Sleep(tt.free + time.Second)
			synctest.Wait()
			told := outs[0].Body.Len()
			defer w.takeRoom(t, room)()
			ends := map[time.Duration]bool{}
			for _, o := range watches {
				end := o.end(t, 20*time.Second)
				if end != watch.EndLost || o.ended < time.Second {
					t.Errorf("ended after %v: %q", o.ended, end)
				}
				ends[o.ended] = true
			}
			if len(ends) < clients/2 || outs[0].Body.Len() != told {
				t.Errorf("all ended at %v; one was told %d bytes, and then %d", ends, told, outs[0].Body.Len()-told)
			}
		})
	}
}

// TestStateWhereHistoryIsShort: where memory is so tight that the history is cut behind each change,
// a client that takes a while for its state gets all of it, and its end. Then its watch ends, but not
// at once: client-go would list.
func TestStateWhereHistoryIsShort(t *testing.T) {
	const reads = 2 * time.Second
	for _, bytes := range []int64{100 << 20, 1_900_000} {
		proxytest.Bubble(t, fmt.Sprint(bytes), func(t *testing.T) {
			w := newModelWorld(t, func(c *snapshot.Config) { c.Bytes = bytes })
			w.bulk = randomText(600 << 10) // more than is written at once
			w.bound(t, 100<<20, 0)
			w.load(t)
			out := &slowReader{httptest.NewRecorder(), reads}
			o := w.open(t, out, streaming+"&timeoutSeconds=3600&resourceVersion=0", "identity")
			defer o.leave()
			for range 3 {
				time.Sleep(reads / 4)
				w.write()
				synctest.Wait()
			}
			end := o.end(t, reads+20*time.Second)
			if whole := strings.Contains(out.Body.String(), "initial-events-end"); !whole {
				t.Errorf("it ended as %q after %v, before the end of the state", end, o.ended)
			}
			if short := bytes < 100<<20; (end == watch.EndBehind) != short || short && o.ended < reads+time.Second {
				t.Errorf("it ended as %q after %v", end, o.ended)
			}
		})
	}
}

// TestStreamingListThatWaitsForRoom: it goes on from its state. If the history forgets meanwhile what
// comes after that, it is forwarded.
func TestStreamingListThatWaitsForRoom(t *testing.T) {
	for _, bytes := range []int64{100 << 20, 1_900_000} {
		proxytest.Bubble(t, fmt.Sprint(bytes), func(t *testing.T) {
			const room = 2 << 20
			w := newModelWorld(t, func(c *snapshot.Config) { c.Bytes = bytes })
			w.bulk = randomText(600 << 10)
			w.bound(t, room, time.Minute)
			w.load(t)
			free := w.takeRoom(t, room)
			out := newTold()
			o := w.open(t, out, streaming+"&timeoutSeconds=3600&resourceVersion=0", "identity")
			defer o.leave()
			first := w.revision
			for range 3 {
				time.Sleep(time.Second)
				w.write()
			}
			synctest.Wait()
			free()
			synctest.Wait()
			if bytes < 100<<20 {
				if <-o.done; o.why != reason.History || len(out.String()) > 0 {
					t.Errorf("%q, %d bytes", o.why, len(out.String()))
				}
				return
			}
			told := out.String()
			end := fmt.Sprintf(`{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"%d"}`, first)
			if events := strings.Count(told, "\n"); !strings.Contains(told, end) || events != 2+w.revision-first {
				t.Errorf("it is told %d events, with the bookmark of %d: %t (%q)", events, first, strings.Contains(told, end), o.why)
			}
			select {
			case <-o.done:
				t.Errorf("it has ended: %q", o.why)
			default:
			}
		})
	}
}

// TestSpanOfAWatch: the span of a watch ends with its stream, and says how many events it had, and why
// it has ended.
func TestSpanOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		spans := tracetest.NewInMemoryExporter()
		w.handler.Observer, _ = observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.AlwaysSample())))
		w.load(t)
		const lasts = time.Minute
		out := newTold()
		o := w.open(t, out, fmt.Sprintf("watch=true&timeoutSeconds=%.0f&resourceVersion=%s", lasts.Seconds(), now), "")
		w.write()
		w.write()
		synctest.Wait()
		if ended := proxytest.SpanNames(spans.GetSpans()); slices.Contains(ended, observe.SpanWatch) {
			t.Errorf("it has ended while the watch goes on: %q", ended)
		}
		if end := o.end(t, lasts+time.Second); end != watch.EndTimeout {
			t.Fatalf("the watch ended as %q", end)
		}
		span := proxytest.SpanNamed(t, spans.GetSpans(), observe.SpanWatch)
		if took := span.EndTime.Sub(span.StartTime); took != lasts {
			t.Errorf("it took %v", took)
		}
		want := map[attribute.Key]attribute.Value{}
		for _, is := range observe.WatchEnd(2, "timeout") {
			want[is.Key] = is.Value
		}
		for _, is := range span.Attributes {
			if want[is.Key] == is.Value {
				delete(want, is.Key)
			}
		}
		if len(want) > 0 {
			t.Errorf("it lacks %v: %v", want, span.Attributes)
		}
	})
}

// randomText is what gzip cannot make much shorter.
func randomText(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	return string(text)
}

// plain is what was written, in whole members if it was compressed.
func plain(t *testing.T, out *httptest.ResponseRecorder) string {
	t.Helper()
	if out.Header().Get("Content-Encoding") != "gzip" {
		return out.Body.String()
	}
	read, err := stdgzip.NewReader(out.Body)
	expect.NoError(t, err)
	text, err := io.ReadAll(read)
	if err != nil {
		t.Errorf("not in whole members: %v", err)
	}
	return string(text)
}

// TestAuditOfAWatch: the log has the beginning of a watch, before anything was written of it, and by
// whom it was; nobody is asked again at its end.
func TestAuditOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		sink, asked := w.audited(t)
		w.load(t)
		o := w.open(t, httptest.NewRecorder(), "watch=true&timeoutSeconds=3600&resourceVersion="+now, "")
		o.leave()
		if end := o.end(t, time.Minute); end != watch.EndGone {
			t.Fatalf("it ended as %q", end)
		}
		expect.NoError(t, w.handler.AuditLog.Close(context.Background()))
		var told []string
		for line := range strings.Lines(sink.String()) {
			var event auditv1.Event
			expect.NoError(t, json.Unmarshal([]byte(line), &event))
			told = append(told, fmt.Sprint(event.Stage, " ", event.Verb, " ", event.User.Username))
		}
		if diff := cmp.Diff([]string{"ResponseStarted watch alice"}, told); diff != "" || *asked != 1 {
			t.Errorf("asked %d times who it is (-want +got):\n%s", *asked, diff)
		}
	})
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

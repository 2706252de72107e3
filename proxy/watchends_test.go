package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestInterruptedStates: whatever ends a watch while its client still reads the state, slowly, ends the state, too:
// nothing more of it is written than the event under way, and its room is free, though the watch may end later.
func TestInterruptedStates(t *testing.T) {
	const reads, room = 25 * time.Second, 10 << 20 // longer than what is left of a lost span is told
	for name, tt := range map[string]struct {
		timeout int // in seconds
		// happens after five seconds.
		happens func(*modelWorld, *client)
		wantEnd watch.Ending // "": it goes on
	}{
		"nothing":     {timeout: 3600, happens: func(*modelWorld, *client) {}},
		"the timeout": {timeout: 10, happens: func(*modelWorld, *client) {}, wantEnd: watch.EndTimeout},
		"a shutdown": {
			timeout: 3600,
			happens: func(w *modelWorld, _ *client) { w.handler.Collections.EndWatches(0) },
			wantEnd: watch.EndShutdown,
		},
		"the client leaves": {
			timeout: 3600, happens: func(_ *modelWorld, c *client) { c.leave() }, wantEnd: watch.EndGone,
		},
		"the span is lost": {
			timeout: 3600, happens: func(w *modelWorld, _ *client) { w.cut(func() { w.revision++ }) }, wantEnd: watch.EndLost,
		},
		"the state is dropped": {
			timeout: 3600, happens: func(w *modelWorld, _ *client) { w.drop() }, wantEnd: watch.EndLost,
		},
		"the definition changed": {
			timeout: 3600, happens: func(w *modelWorld, _ *client) { w.redefine() }, wantEnd: watch.EndLost,
		},
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			proxytest.Bubble(t, name+", "+encoding, func(t *testing.T) {
				w := newModelWorld(t)
				w.compresses, w.bulk = true, randomText(600<<10) // more than is written at once
				w.bound(t, room, time.Minute)
				w.load(t)
				c := &client{encoding: encoding, reads: reads}
				w.openAs(t, c, fmt.Sprint(streaming, "&resourceVersion=0&timeoutSeconds=", tt.timeout))
				expect.Same(t, true, w.handler.Limits.Stats()["bytes"].InUse > 0)
				time.AfterFunc(5*time.Second, func() { tt.happens(w, c) })
				expect.Same(t, tt.wantEnd, c.end(t, reads+time.Second))
				expect.Same(t, int64(0), w.handler.Limits.Stats()["bytes"].InUse)
				told := c.told(t)
				whole := strings.Contains(told, "initial-events-end")
				if whole != (tt.wantEnd == "") || !strings.HasSuffix(told, "}\n") {
					t.Errorf("%d bytes are written, with the end of the state: %t", len(told), whole)
				}
			})
		}
	}
}

// TestNothingOfADoubtfulState: once a state is in doubt, no byte of an object of it follows, with gzip or without.
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
				out := httptest.NewRecorder()
				asked, before := 0, 0
				stands := func() bool {
					if asked++; asked == looks+1 {
						before = out.Body.Len()
					}
					return asked <= looks
				}
				s := hubStream(hubOf(size), stands, out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				defer s.watcher.Close(watch.EndGone)
				s.handler, s.compressed, s.state = &Handler{Compressor: compressor}, compressed, &body{objects: state, size: objects * size}
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
				if s.uncompressed != len(text) {
					t.Errorf("%d bytes are written, and said to be %d", len(text), s.uncompressed)
				}
			})
		}
	}
}

const (
	aLot = 100 << 20
	// tight is so little memory that the history of an object of 600 KB is cut behind each change.
	tight = 1_900_000
)

// TestStateWhereHistoryIsShort: a client that takes a while for its state gets all of it, and its end, also where
// its history is forgotten meanwhile. Then its watch ends, but not at once: client-go would list.
func TestStateWhereHistoryIsShort(t *testing.T) {
	const reads = 2 * time.Second
	for _, memory := range []int64{aLot, tight} {
		proxytest.Bubble(t, fmt.Sprint(memory), func(t *testing.T) {
			w := newTightWorld(t, memory)
			w.bulk = randomText(600 << 10) // more than is written at once
			w.bound(t, aLot, 0)
			w.load(t)
			c := &client{reads: reads}
			w.openAs(t, c, streaming+"&timeoutSeconds=3600&resourceVersion=0")
			for range 3 {
				time.Sleep(reads / 4)
				w.write()
				synctest.Wait()
			}
			end := c.end(t, reads+20*time.Second)
			if !strings.Contains(c.told(t), "initial-events-end") {
				t.Errorf("it ended as %q after %v, before the end of the state", end, c.ended)
			}
			if memory == aLot && end != "" || memory == tight && (end != watch.EndBehind || c.ended < reads+time.Second) {
				t.Errorf("it ended as %q after %v", end, c.ended)
			}
		})
	}
}

// TestStreamingListThatWaitsForRoom: it goes on from its state. If the history forgets meanwhile what
// comes after that, it is forwarded.
func TestStreamingListThatWaitsForRoom(t *testing.T) {
	for _, memory := range []int64{aLot, tight} {
		proxytest.Bubble(t, fmt.Sprint(memory), func(t *testing.T) {
			const room, writes = 2 << 20, 3
			w := newTightWorld(t, memory)
			w.bulk = randomText(600 << 10)
			w.bound(t, room, time.Minute)
			w.load(t)
			free := w.takeRoom(t, room)
			c := w.open(t, streaming+"&timeoutSeconds=3600&resourceVersion=0")
			end := fmt.Sprintf(`{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"%d"}`, w.revision)
			for range writes {
				time.Sleep(time.Second)
				w.write()
			}
			synctest.Wait()
			free()
			synctest.Wait()
			told := c.told(t)
			if memory == tight {
				if c.why != reason.History || told != "" {
					t.Errorf("%q, %d bytes", c.why, len(told))
				}
				return
			}
			if c.why != "" || !strings.Contains(told, end) || c.events(t) != 1+1+writes {
				t.Errorf("%q; it is told %d events, with the bookmark at its state: %t", c.why, c.events(t), strings.Contains(told, end))
			}
		})
	}
}

// TestWatchesOutliveReopenings: while the stream of definitions is opened again, which takes an API server with too
// much to do longer than definitions are trusted, events wait and watches go on. They end if the definition was
// changed meanwhile: nothing that was in doubt is told then.
func TestWatchesOutliveReopenings(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*modelWorld)
		wantTold  int
		wantEnd   watch.Ending // "": it goes on
	}{
		"it is as it was": {meanwhile: func(*modelWorld) {}, wantTold: 1},
		"it was changed": {
			meanwhile: func(w *modelWorld) { w.change(modelDefinitions, w.redefined) }, wantEnd: watch.EndLost,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			c := w.open(t, "watch=true&timeoutSeconds=3600&resourceVersion="+now)
			w.doubt()
			time.Sleep(snapshot.Skew + time.Second)
			synctest.Wait()
			w.write()
			tt.meanwhile(w)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if early := c.told(t); early != "" {
				t.Errorf("told while it was in doubt: %s", early)
			}
			w.Flow(modelDefinitions)
			expect.Same(t, tt.wantEnd, c.end(t, 6*time.Minute))
			expect.Same(t, tt.wantTold, c.events(t))
		})
	}
}

package proxy

import (
	"cmp"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	// aboveWriteBuffer is the length of an object that does not fit into a write buffer.
	aboveWriteBuffer = 600 << 10
	// ample is enough memory, or room, for everything.
	ample = 100 << 20
	// tight is so little memory that the history of an object of aboveWriteBuffer bytes is shortened at each change.
	tight = 1_900_000
)

// TestWatchEndsDuringItsState: if a watch ends while its client still reads the initial state, the event that is being written is
// the last one, and the room for the state is released.
func TestWatchEndsDuringItsState(t *testing.T) {
	const (
		readDelay   = 25 * time.Second // longer than a watcher of a lost history lives
		changeAfter = 5 * time.Second
	)
	unchanged := func(*modelWorld, *client) {}
	for name, tt := range map[string]struct {
		timeout int                        // in seconds; 0: an hour
		change  func(*modelWorld, *client) // at changeAfter, from the request
		wantEnd watch.Ending               // "": the watch goes on
	}{
		"no change":   {change: unchanged},
		"the timeout": {timeout: 10, change: unchanged, wantEnd: watch.EndTimeout},
		"a shutdown": {
			change: func(w *modelWorld, _ *client) { w.handler.Collections.EndWatches(0) }, wantEnd: watch.EndShutdown,
		},
		"the client leaves": {change: func(_ *modelWorld, c *client) { c.leave() }, wantEnd: watch.EndGone},
		"the history is lost": {
			change: func(w *modelWorld, _ *client) {
				server := w.Servers()[0]
				server.Stop()
				w.write()
				server.Start("v1.36.3") // with a watch cache that begins after the write
			},
			wantEnd: watch.EndLost,
		},
		"the state is dropped":   {change: func(w *modelWorld, _ *client) { w.loseState(time.Minute) }, wantEnd: watch.EndLost},
		"the definition changed": {change: func(w *modelWorld, _ *client) { w.redefine() }, wantEnd: watch.EndLost},
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			proxytest.Bubble(t, name+", "+encoding, func(t *testing.T) {
				w := newModelWorld(t)
				w.compresses = true
				w.writeBulk(aboveWriteBuffer)
				w.setRoom(ample, time.Minute)
				w.load(t)
				c := &client{encoding: encoding, readDelay: readDelay}
				w.openAs(t, c, fmt.Sprint(newestStreamingList, "&resourceVersion=0&timeoutSeconds=", cmp.Or(tt.timeout, 3600)))
				if w.roomInUse() == 0 {
					t.Error("got no room in use, want the state's")
				}
				time.AfterFunc(changeAfter, func() { tt.change(w, c) })
				expect.Same(t, tt.wantEnd, c.awaitEnd(t, readDelay+time.Second))
				expect.Same(t, int64(0), w.roomInUse())
				got := c.received(t)
				wantWhole := tt.wantEnd == ""
				if whole := strings.Contains(got, "initial-events-end"); whole != wantWhole {
					t.Errorf("got the whole state: %t, want %t", whole, wantWhole)
				}
				if !strings.HasSuffix(got, "}\n") {
					t.Errorf("got %d bytes, want them to end with a whole event", len(got))
				}
			})
		}
	}
}

// TestNothingOfADoubtfulState: once the state may be invalid, writeInitial writes no more bytes of its objects, with gzip or
// without.
func TestNothingOfADoubtfulState(t *testing.T) {
	const (
		size    = 2 << 10 // of an object
		objects = 500
	)
	var state []*index.Object
	for i := range uint64(objects) {
		state = append(state, index.NewObject(i+1, fmt.Sprint(i), 1, []byte(`{"data":"`+randomText(size)+`"}`)))
	}
	compressor, err := gzip.NewCompressor(0)
	expect.NoError(t, err)
	for name, tt := range map[string]struct {
		compressed bool
		wantAtMost int // bytes after the state became invalid
	}{
		"identity": {wantAtMost: 0},
		"gzip":     {compressed: true, wantAtMost: 100}, // the head and the end of a member, but no object
	} {
		for validChecks := range 4 {
			proxytest.Bubble(t, fmt.Sprintf("%s, valid for %d checks", name, validChecks), func(t *testing.T) {
				out := httptest.NewRecorder()
				checks := 0
				whileValid := 0 // bytes written before the first check that finds the state invalid
				isDefined := func() bool {
					checks++
					if checks == validChecks+1 {
						whileValid = out.Body.Len()
					}
					return checks <= validChecks
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				s := streamOfEverything(broadcasterWithOneCreation(size), isDefined, out, r)
				defer s.watcher.Close(watch.EndGone)
				s.handler = &Handler{Compressor: compressor}
				s.compressed = tt.compressed
				s.initial = &body{objects: state, size: objects * size}
				s.writeInitial()
				expect.Same(t, watch.EndLost, s.ending)
				if more := out.Body.Len() - whileValid; more > tt.wantAtMost {
					t.Errorf("got %d more bytes, want at most %d", more, tt.wantAtMost)
				}
				if tt.compressed {
					out.Header().Set("Content-Encoding", "gzip") // for plain
				}
				text := plain(t, out)
				expect.Same(t, len(text), s.uncompressed)
				if validChecks > 0 {
					expect.Same(t, strings.Count(text, "\n"), s.events)
				}
			})
		}
	}
}

// TestStateWhereHistoryIsShort: a client that reads its state slowly gets all of the state, even if the history after it is
// forgotten meanwhile. In that case the watch ends, but not at once, since client-go would list instead of watching.
func TestStateWhereHistoryIsShort(t *testing.T) {
	const readDelay = 2 * time.Second
	for name, tt := range map[string]struct {
		memory  int64
		wantEnd watch.Ending // "": the watch goes on
	}{
		"ample memory":             {memory: ample},
		"the history is forgotten": {memory: tight, wantEnd: watch.EndBehind},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorldWithMemory(t, tt.memory)
			w.writeBulk(aboveWriteBuffer)
			w.setRoom(ample, 0)
			w.load(t)
			c := &client{readDelay: readDelay}
			w.openAs(t, c, newestStreamingList+"&timeoutSeconds=3600&resourceVersion=0")
			for range 3 {
				time.Sleep(readDelay / 4)
				w.write()
				synctest.Wait()
			}
			end := c.awaitEnd(t, readDelay+20*time.Second)
			if !strings.Contains(c.received(t), "initial-events-end") {
				t.Error("got a part of the state, want all of it")
			}
			expect.Same(t, tt.wantEnd, end)
			if endedEarly := c.duration < readDelay+time.Second; end != "" && endedEarly {
				t.Errorf("the watch ended after %v, want a second after its state at the earliest", c.duration)
			}
		})
	}
}

// TestStreamingListThatWaitsForRoom: a streaming list that has waited for room continues after its state. It is forwarded if
// the history after its state is forgotten meanwhile.
func TestStreamingListThatWaitsForRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		memory  int64
		wantWhy reason.Reason // why the list is forwarded
	}{
		"ample memory":             {memory: ample, wantWhy: reason.None},
		"the history is forgotten": {memory: tight, wantWhy: reason.History},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			const (
				room   = 2 << 20
				writes = 3 // while the list waits for room
			)
			w := newModelWorldWithMemory(t, tt.memory)
			w.writeBulk(aboveWriteBuffer)
			w.setRoom(room, time.Minute)
			w.load(t)
			release := w.takeRoom(t, room)
			c := w.open(t, newestStreamingList+"&timeoutSeconds=3600&resourceVersion=0")
			end := fmt.Sprintf(`{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"%d"}`, w.Revision())
			for range writes {
				time.Sleep(time.Second)
				w.write()
			}
			synctest.Wait()
			release()
			synctest.Wait()
			got := c.received(t)
			expect.Same(t, tt.wantWhy, c.why)
			if tt.wantWhy != reason.None {
				expect.Same(t, "", got)
				return
			}
			expect.Says(t, got, end)
			const objectAndBookmark = 2
			expect.Same(t, objectAndBookmark+writes, c.events(t))
		})
	}
}

// TestWatchesOutliveReopenings: while the watch of definitions is opened again, which may take a busy API server longer than
// definitions are trusted, watches go on, but get no events. If the definition was changed meanwhile, they end without these
// events.
func TestWatchesOutliveReopenings(t *testing.T) {
	for name, tt := range map[string]struct {
		change     func(*modelWorld)
		wantEvents int
		wantEnd    watch.Ending // "": the watch goes on
	}{
		"definition unchanged": {change: func(*modelWorld) {}, wantEvents: 1},
		"definition changed":   {change: (*modelWorld).redefine, wantEnd: watch.EndLost},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			c := w.open(t, "watch=true&timeoutSeconds=3600&resourceVersion="+newestRevision)
			w.stallDefinitions()
			time.Sleep(snapshot.Skew + time.Second)
			synctest.Wait()
			w.write()
			tt.change(w)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if early := c.received(t); early != "" {
				t.Errorf("got %s while the definition is not trusted, want nothing", early)
			}
			w.Unstall(inmemory.Definitions.Path)
			expect.Same(t, tt.wantEnd, c.awaitEnd(t, 6*time.Minute))
			expect.Same(t, tt.wantEvents, c.events(t))
		})
	}
}

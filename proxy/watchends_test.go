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
	// aboveWriteBuffer is the length of an object that is longer than every write buffer (64 KiB at most).
	aboveWriteBuffer = 600 << 10
	// ample is enough memory, or room, for everything, in bytes.
	ample = 100 << 20
	// tight is memory for about three versions of an object of aboveWriteBuffer bytes. Memory keeps the last changes for
	// watches (the history). With so little memory, it forgets the oldest change at each new one.
	tight = 1_900_000
	// watchGoesOn is the ending of a watch that has not ended.
	watchGoesOn watch.Ending = ""
)

// TestWatchEndsDuringItsState: if a watch ends while its client still reads the initial state, the event that is being written
// is the last one, and the room for the state is released. Here the client reads nothing for 25 s, and the watch ends
// meanwhile.
func TestWatchEndsDuringItsState(t *testing.T) {
	const (
		readDelay   = 25 * time.Second // a watch ends sooner than that after its history was lost
		changeAfter = 5 * time.Second  // from the request
	)
	unchanged := func(*modelWorld, *client) {}
	for name, tt := range map[string]struct {
		timeout int                        // the client's, in seconds; 0: an hour
		change  func(*modelWorld, *client) // at changeAfter
		wantEnd watch.Ending
	}{
		"no change":   {change: unchanged, wantEnd: watchGoesOn},
		"the timeout": {timeout: 10, change: unchanged, wantEnd: watch.EndTimeout},
		"a shutdown": {
			change: func(w *modelWorld, _ *client) {
				const atOnce = 0 // not spread over some time
				w.handler.Collections.EndWatches(atOnce)
			},
			wantEnd: watch.EndShutdown,
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
				wantWholeState := tt.wantEnd == watchGoesOn
				if isWhole := strings.Contains(got, "initial-events-end"); isWhole != wantWholeState {
					t.Errorf("got the whole state: %t, want %t", isWhole, wantWholeState)
				}
				if !strings.HasSuffix(got, "}\n") {
					t.Errorf("got %d bytes, want them to end with a whole event", len(got))
				}
			})
		}
	}
}

// TestNothingOfADoubtfulState: writeInitial checks many times whether the state is still valid. Once a check says that it may
// not be, writeInitial writes no more bytes of its objects, with gzip or without. This is the first, second, third or fourth
// check.
func TestNothingOfADoubtfulState(t *testing.T) {
	const (
		size = 2 << 10 // of an object, in bytes
		// The state has about 4 MB: many write buffers, and about 30 compressed segments. How many there are depends on a hash
		// whose seed is random. With 1 MB there were too few for the fourth check in one of about 300 runs.
		objects = 2000
	)
	var state []*index.Object
	for i := range uint64(objects) {
		state = append(state, index.NewObject(i+1, fmt.Sprint(i), 1, []byte(`{"data":"`+randomText(size)+`"}`)))
	}
	compressor, err := gzip.NewCompressor(0)
	expect.NoError(t, err)
	for name, tt := range map[string]struct {
		compressed bool
		wantAtMost int // bytes that are written after the check
	}{
		"identity": {wantAtMost: 0},
		"gzip":     {compressed: true, wantAtMost: 100}, // the header and the end of the gzip member, but no object
	} {
		for validChecks := range 4 {
			proxytest.Bubble(t, fmt.Sprintf("%s, valid for %d checks", name, validChecks), func(t *testing.T) {
				out := httptest.NewRecorder()
				checks := 0
				writtenBefore := 0 // bytes that were written before the first check that finds the state invalid
				isDefined := func() bool {
					checks++
					if checks == validChecks+1 {
						writtenBefore = out.Body.Len()
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
				if more := out.Body.Len() - writtenBefore; more > tt.wantAtMost {
					t.Errorf("got %d more bytes after the check, want at most %d", more, tt.wantAtMost)
				}
				// The numbers for metrics are those of the bytes that were written.
				if tt.compressed {
					out.Header().Set("Content-Encoding", "gzip") // so that plain decompresses the body
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

// TestStateWhereHistoryIsShort: a client that reads its state slowly gets all of the state, even if memory forgets the changes
// after this state meanwhile. In that case the watch ends, but at least a second after its state: if a watch ends at once,
// client-go lists instead of watching again.
func TestStateWhereHistoryIsShort(t *testing.T) {
	const readDelay = 2 * time.Second
	for name, tt := range map[string]struct {
		memory  int64 // in bytes
		wantEnd watch.Ending
	}{
		"ample memory":             {memory: ample, wantEnd: watchGoesOn},
		"the history is forgotten": {memory: tight, wantEnd: watch.EndBehind},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorldWithMemory(t, tt.memory)
			w.writeBulk(aboveWriteBuffer)
			w.setRoom(ample, time.Minute)
			w.load(t)
			c := &client{readDelay: readDelay}
			w.openAs(t, c, newestStreamingList+"&timeoutSeconds=3600&resourceVersion=0")
			for range 3 { // three changes, while the client reads nothing
				time.Sleep(readDelay / 4)
				w.write()
				synctest.Wait()
			}
			end := c.awaitEnd(t, readDelay+20*time.Second)
			if !strings.Contains(c.received(t), "initial-events-end") {
				t.Error("got a part of the state, want all of it")
			}
			expect.Same(t, tt.wantEnd, end)
			if endedEarly := c.duration < readDelay+time.Second; end != watchGoesOn && endedEarly {
				t.Errorf("the watch ended after %v, want a second after its state at the earliest", c.duration)
			}
		})
	}
}

// TestStreamingListThatWaitsForRoom: a streaming list that waits for room has a state already. When there is room, it gets this
// state, and then the changes since. It is forwarded if memory has forgotten these changes.
func TestStreamingListThatWaitsForRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		memory  int64         // in bytes
		wantWhy reason.Reason // why the list is forwarded
	}{
		"ample memory":             {memory: ample, wantWhy: reason.None},
		"the history is forgotten": {memory: tight, wantWhy: reason.History},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			const (
				room   = 2 << 20 // bytes, in all
				writes = 3       // while the list waits for room
			)
			w := newModelWorldWithMemory(t, tt.memory)
			w.writeBulk(aboveWriteBuffer)
			w.setRoom(room, time.Minute)
			w.load(t)
			release := w.takeRoom(t, room)
			c := w.open(t, newestStreamingList+"&timeoutSeconds=3600&resourceVersion=0")
			wantBookmark := fmt.Sprintf(`{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"%d"}`, w.Revision())
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
			expect.Says(t, got, wantBookmark)
			const initialEvents = 2 // the only object, and the bookmark
			expect.Same(t, initialEvents+writes, c.events(t))
		})
	}
}

// TestWatchesOutliveReopenings: listproxy watches the definitions of resources. If this watch breaks off, listproxy opens it
// again. A busy API server may take long for that, and soon nobody knows whether the definitions have changed. Meanwhile the
// clients' watches go on, but get no events. If their definition was changed, they end without these events.
func TestWatchesOutliveReopenings(t *testing.T) {
	for name, tt := range map[string]struct {
		change     func(*modelWorld)
		wantEvents int // after the watch of definitions is open again
		wantEnd    watch.Ending
	}{
		"definition unchanged": {change: func(*modelWorld) {}, wantEvents: 1, wantEnd: watchGoesOn},
		"definition changed":   {change: (*modelWorld).redefine, wantEvents: 0, wantEnd: watch.EndLost},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			c := w.open(t, "watch=true&timeoutSeconds=3600&resourceVersion="+newestRevision)
			w.stallDefinitions()
			time.Sleep(snapshot.Skew + time.Second) // then the definitions are not trusted any more
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

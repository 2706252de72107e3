package faults

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// streamCases break what passes between listproxy and kube-apiserver.
func streamCases() []faultCase {
	cases := []faultCase{
		{
			name: "connections_cut", suite: makeTest, inSoak: true, wantHistoryKept: true, wantNobodyRejected: true,
			args: []string{"--history-window", "1h"}, fault: func(s *scene) time.Time {
				const pause = 300 * time.Millisecond // in which connections come back
				for begun := time.Now(); time.Since(begun) < *duration; {
					s.hop.CutAll()
					clock.Sleep(s.Context(), pause)
				}
				s.hop.CutAll()
				return time.Now()
			},
		},
		// The fault ends when listproxy notices that its connections are dead. So recovery is measured from the beginning of
		// the fault.
		{name: "connections_half_open", inSoak: true, fault: func(s *scene) time.Time {
			s.pauseWrites.Lock() // no write is half done when connections stop
			s.hop.SwallowAll()
			begun := time.Now()
			s.pauseWrites.Unlock()
			s.waitDuringFault()
			return begun
		}},
		{name: "upstream_silent", suite: makeTestAll, inSoak: true, fault: func(s *scene) time.Time {
			s.hop.Freeze()
			clock.Sleep(s.Context(), load.Bound+*duration)
			s.hop.Thaw()
			return time.Now()
		}},
		{name: "watches_delayed_unevenly", suite: makeTestAll, inSoak: true, fault: func(s *scene) time.Time {
			s.hop.OnDelay(func(r *http.Request) time.Duration {
				switch {
				case strings.HasSuffix(r.URL.Path, "/"+configMaps.Plural):
					return 0
				case strings.HasSuffix(r.URL.Path, "/"+pods.Plural):
					return time.Second
				}
				return 3 * time.Second
			})
			s.waitDuringFault()
			s.hop.OnDelay(nil)
			return time.Now()
		}},
		{name: "watches_delayed_ever_more", suite: makeTestAll, inSoak: true, fault: func(s *scene) time.Time {
			// The delay grows with the time. An event that comes 5 s after the beginning passes at 10 s, and one that comes at
			// 6 s passes at 12 s. So events flow without a gap, at half their speed. The last ones that pass are late by twice
			// the bound.
			begun := time.Now()
			s.hop.OnDelay(func(*http.Request) time.Duration { return time.Since(begun) })
			clock.Sleep(s.Context(), max(4*load.Bound, *duration))
			s.hop.OnDelay(nil)
			s.hop.CutAll() // events that are still held back would keep their delay
			return time.Now()
		}},
		{name: "watches_garbled", suite: makeTestAll, inSoak: true, fault: func(s *scene) time.Time {
			return s.rewriteWatches(func(r *http.Request, line []byte) ([]byte, error) {
				switch {
				case !hop.Own(r) || rand.IntN(3) > 0: // two of three events stay as they are
					return line, nil
				case bytes.HasPrefix(line, []byte("{")): // an event in JSON: its first half, and then garbage
					return slices.Concat(line[:len(line)/2], []byte("\x00garbage\n")), nil
				}
				return []byte("\x00\x00\x00\x07garbage"), nil // in protobuf: a frame of the right length
			})
		}},
	}
	for _, code := range []int{http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError} {
		told := faultCase{name: "watches_told_" + strconv.Itoa(code), fault: func(s *scene) time.Time { return s.endWatchesWith(code) }}
		if code == http.StatusGone {
			told.suite, told.inSoak = makeTestAll, true
		}
		refused := faultCase{name: "watches_refused_" + strconv.Itoa(code), inSoak: true, fault: func(s *scene) time.Time {
			s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
				return r.URL.Query().Get("watch") != "" && hop.Refuse(w, code)
			})
			s.hop.CutAll()
			s.waitDuringFault()
			s.hop.OnRequest(nil)
			return time.Now()
		}}
		cases = append(cases, told, refused)
	}
	return cases
}

// endWatchesWith replaces the next event of each watch by an ERROR event with the code, as kube-apiserver writes it, and ends
// the watch. The case fails unless listproxy's own watches got such events both in JSON and in protobuf.
func (s *scene) endWatchesWith(code int) time.Time {
	s.Helper()
	var inJSON, inProtobuf atomic.Int32
	endedAt := s.rewriteWatches(func(r *http.Request, line []byte) ([]byte, error) {
		binary := !bytes.HasPrefix(line, []byte("{"))
		if isFeedRequest(r) {
			if binary {
				inProtobuf.Add(1)
			} else {
				inJSON.Add(1)
			}
		}
		return hop.ErrorEvent(code, binary), io.EOF
	})
	if inJSON.Load() == 0 || inProtobuf.Load() == 0 {
		s.Errorf("feeds got %d errors in JSON and %d in protobuf, want some of both", inJSON.Load(), inProtobuf.Load())
	}
	return endedAt
}

// rewriteWatches is a fault in which the hop passes each event of a watch (a line of JSON, or a frame) through rewrite. An
// error of rewrite ends the watch ([hop.Hop.OnLine]).
func (s *scene) rewriteWatches(rewrite func(*http.Request, []byte) ([]byte, error)) time.Time {
	s.hop.OnLine(rewrite)
	s.waitDuringFault()
	s.hop.OnLine(nil)
	return time.Now()
}

package faults

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
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
		{name: "connections_cut", runs: always, soaks: true, keepsHistory: true, refusesNobody: true, args: []string{"--history-window", "1h"}, fault: func(s *scene) time.Time {
			for begun := time.Now(); time.Since(begun) < *duration; {
				s.hop.CutAll()
				clock.Sleep(s.Context(), 300*time.Millisecond)
			}
			s.hop.CutAll()
			return time.Now()
		}},
		{name: "connections_half_open", soaks: true, fault: func(s *scene) time.Time {
			// It never ends by itself: over is when it began, and it lasts until listproxy has
			// noticed.
			s.writing.Lock() // what was confirmed before has been written before
			s.hop.SwallowAll()
			at := time.Now()
			s.writing.Unlock()
			s.hold()
			return at
		}},
		{name: "upstream_silent", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			s.hop.Freeze()
			clock.Sleep(s.Context(), load.Bound+*duration)
			s.hop.Thaw()
			return time.Now()
		}},
		{name: "watches_delayed_unevenly", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			s.hop.OnDelay(func(r *http.Request) time.Duration {
				switch {
				case strings.HasSuffix(r.URL.Path, "/"+configMaps.Plural):
					return 0
				case strings.HasSuffix(r.URL.Path, "/"+pods.Plural):
					return time.Second
				}
				return 3 * time.Second
			})
			s.hold()
			s.hop.OnDelay(nil)
			return time.Now()
		}},
		{name: "watches_delayed_ever_more", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			// What comes after a time goes on after twice that: events flow without a gap, half as
			// fast as they are made, and are as old in the end as twice the bound.
			begun := time.Now()
			s.hop.OnDelay(func(*http.Request) time.Duration { return time.Since(begun) })
			clock.Sleep(s.Context(), max(4*load.Bound, *duration))
			s.hop.OnDelay(nil)
			s.hop.CutAll() // what is still held back would go on as late as it was to
			return time.Now()
		}},
		{name: "watches_garbled", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			return s.changed(func(r *http.Request, line []byte) ([]byte, error) {
				switch {
				case !hop.Own(r) || rand.IntN(3) > 0:
					return line, nil
				case strings.HasPrefix(string(line), "{"):
					return append(line[:len(line)/2:len(line)/2], "\x00garbage\n"...), nil
				}
				return []byte("\x00\x00\x00\x07garbage"), nil
			})
		}},
	}
	for _, code := range []int{http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError} {
		cases = append(cases, faultCase{name: "watches_told_" + strconv.Itoa(code), runs: map[int]runs{http.StatusGone: inFull}[code], soaks: code == http.StatusGone, fault: func(s *scene) time.Time { return s.told(code) }})
		cases = append(cases, faultCase{name: "watches_refused_" + strconv.Itoa(code), soaks: true, fault: func(s *scene) time.Time {
			s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
				return r.URL.Query().Get("watch") != "" && hop.Refuse(w, code)
			})
			s.hop.CutAll()
			s.hold()
			s.hop.OnRequest(nil)
			return time.Now()
		}})
	}
	return cases
}

// told ends each watch, as soon as it has something to tell, with an ERROR in its place, as
// kube-apiserver writes it: in JSON and in protobuf. Feeds of both must be told.
func (s *scene) told(code int) time.Time {
	s.Helper()
	var inJSON, inProtobuf atomic.Int32
	over := s.changed(func(r *http.Request, line []byte) ([]byte, error) {
		binary := !bytes.HasPrefix(line, []byte("{"))
		if ofFeed(r) {
			if binary {
				inProtobuf.Add(1)
			} else {
				inJSON.Add(1)
			}
		}
		return hop.ErrorEvent(code, binary), io.EOF
	})
	if inJSON.Load() == 0 || inProtobuf.Load() == 0 {
		s.Errorf("feeds were told %d errors in JSON and %d in protobuf", inJSON.Load(), inProtobuf.Load())
	}
	return over
}

// changed changes what watches tell, as long as the fault lasts.
func (s *scene) changed(line func(*http.Request, []byte) ([]byte, error)) time.Time {
	s.hop.OnLine(line)
	s.hold()
	s.hop.OnLine(nil)
	return time.Now()
}

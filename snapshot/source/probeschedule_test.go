package source

import (
	"fmt"
	"testing"
	"time"
)

// TestProbeSchedule: next spaces the probes so that the state never becomes as old as the bound, though only the stream's
// bookmarks confirm it. A stream is left only if its bookmarks are too rare for the bound.
func TestProbeSchedule(t *testing.T) {
	for name, tt := range map[string]struct {
		bound, bookmarkEvery time.Duration
		wantStreamLeft       bool
	}{
		"bookmarks are just in time for the usual bound": {bound: 90 * time.Second, bookmarkEvery: BookmarkEvery},
		"bookmarks are in time for a long bound":         {bound: 5 * time.Minute, bookmarkEvery: BookmarkEvery},
		"bookmarks are in time for a short bound":        {bound: 6 * time.Second, bookmarkEvery: time.Second},
		"bookmarks are too rare for the usual bound":     {bound: 90 * time.Second, bookmarkEvery: time.Hour, wantStreamLeft: true},
		"bookmarks are just too rare for the bound":      {bound: 60 * time.Second, bookmarkEvery: BookmarkEvery, wantStreamLeft: true},
	} {
		for tenths := range 11 {
			spread := float64(tenths) / 10
			t.Run(fmt.Sprintf("%s, spread %v", name, spread), func(t *testing.T) {
				s := newStreamSimulation(newProbeSchedule(tt.bound, spread), tt.bookmarkEvery)
				for s.now.Sub(s.start) < 10*tt.bound && !s.streamLeft {
					s.advance()
					if age := s.now.Sub(s.currentAt); age >= tt.bound {
						t.Errorf("the state became %v old, want less than %v", age, tt.bound)
					}
				}
				if s.streamLeft != tt.wantStreamLeft {
					t.Errorf("the stream was left: got %t, want %t", s.streamLeft, tt.wantStreamLeft)
				}
				if most := int(s.now.Sub(s.start)/s.schedule.pause) + 1; s.probes > most && !s.streamLeft {
					t.Errorf("got %d probes in %v, want at most %d", s.probes, s.now.Sub(s.start), most)
				}
			})
		}
	}
}

// streamSimulation is a feed whose probes are answered at once, with a stream that sends nothing but bookmarks.
type streamSimulation struct {
	schedule                probeSchedule
	bookmarkEvery           time.Duration
	start, now              time.Time
	lastProbe, nextBookmark time.Time
	currentAt               time.Time // the time at which the state was last known to be current
	probes                  int       // the number of probes
	streamLeft              bool      // the stream proves too little, so the feed has left it
}

func newStreamSimulation(schedule probeSchedule, bookmarkEvery time.Duration) *streamSimulation {
	start := time.Now()
	return &streamSimulation{
		schedule: schedule, bookmarkEvery: bookmarkEvery,
		start: start, now: start, lastProbe: start, nextBookmark: start.Add(bookmarkEvery), currentAt: start,
	}
}

// advance lets the next bookmark come or sends the next probe, whichever is earlier.
func (s *streamSimulation) advance() {
	nextProbe := s.schedule.next(s.lastProbe, s.currentAt)
	if s.nextBookmark.Before(nextProbe) {
		s.now = s.nextBookmark
		s.currentAt = s.lastProbe // a bookmark proves that the state has everything from before the last probe
		s.nextBookmark = s.nextBookmark.Add(s.bookmarkEvery)
		return
	}
	s.now = nextProbe
	s.lastProbe = nextProbe
	s.probes++
	s.streamLeft = s.now.Sub(s.currentAt) >= s.schedule.progressAge // as Freshness.Next decides it
}

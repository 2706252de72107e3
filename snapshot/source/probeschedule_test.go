package source

import (
	"fmt"
	"testing"
	"time"
)

// TestProbeSchedule: with the probes of the schedule, the bookmarks of the stream alone keep the state younger than the bound.
// If bookmarks come too rarely for the bound, the state reaches progressAge instead.
func TestProbeSchedule(t *testing.T) {
	for name, tt := range map[string]struct {
		bound, bookmarkEvery   time.Duration
		wantProgressAgeReached bool
	}{
		// At spread 0, the pause is a fifth of the bound.
		"the usual bound: a pause of 18s and a bookmark fit into 84s": {bound: 90 * time.Second, bookmarkEvery: BookmarkEvery},
		"a long bound: a pause of 60s and a bookmark fit into 294s":   {bound: 5 * time.Minute, bookmarkEvery: BookmarkEvery},
		"a short bound, and bookmarks come often":                     {bound: 6 * time.Second, bookmarkEvery: time.Second},
		"the usual bound, and bookmarks come rarely": {
			bound: 90 * time.Second, bookmarkEvery: time.Hour, wantProgressAgeReached: true,
		},
		"a bound that is shorter than the time between bookmarks": {
			bound: 60 * time.Second, bookmarkEvery: BookmarkEvery, wantProgressAgeReached: true,
		},
	} {
		for tenths := range 11 {
			spread := float64(tenths) / 10
			t.Run(fmt.Sprintf("%s, spread %v", name, spread), func(t *testing.T) {
				s := newStreamSimulation(newProbeSchedule(tt.bound, spread), tt.bookmarkEvery)
				for s.elapsed() < 10*tt.bound && !s.progressAgeReached {
					s.advance()
					if s.age() >= tt.bound {
						t.Errorf("after %v the state is %v old, want less than %v", s.elapsed(), s.age(), tt.bound)
					}
				}
				if s.progressAgeReached != tt.wantProgressAgeReached {
					t.Errorf("the state reached progressAge: got %t, want %t", s.progressAgeReached, tt.wantProgressAgeReached)
				}
				// Near progressAge, a probe is sent before its pause is over.
				if most := 1 + int(s.elapsed()/s.schedule.pause); s.probes > most && !s.progressAgeReached {
					t.Errorf("got %d probes in %v, want at most %d", s.probes, s.elapsed(), most)
				}
			})
		}
	}
}

// streamSimulation is a feed whose stream sends nothing but bookmarks. Each probe is answered at once. The simulation ends when
// the state reaches progressAge.
type streamSimulation struct {
	schedule      probeSchedule
	bookmarkEvery time.Duration // the time between two bookmarks

	start, now         time.Time
	lastProbe          time.Time // the time at which the last probe was sent
	nextBookmark       time.Time // the time at which the next bookmark comes
	currentAt          time.Time // the time at which the state was last known to be current
	probes             int       // the number of probes
	progressAgeReached bool      // a probe was due because the state was so old that a progress watch would be opened
}

func newStreamSimulation(schedule probeSchedule, bookmarkEvery time.Duration) *streamSimulation {
	start := time.Now()
	return &streamSimulation{
		schedule: schedule, bookmarkEvery: bookmarkEvery,
		start: start, now: start, lastProbe: start, nextBookmark: start.Add(bookmarkEvery), currentAt: start,
	}
}

// elapsed returns the simulated time since the start.
func (s *streamSimulation) elapsed() time.Duration { return s.now.Sub(s.start) }

// age returns the age of the state.
func (s *streamSimulation) age() time.Duration { return s.now.Sub(s.currentAt) }

// advance lets the next bookmark come or sends the next probe, whichever is earlier.
func (s *streamSimulation) advance() {
	nextProbe := s.schedule.next(s.lastProbe, s.currentAt)
	if s.nextBookmark.Before(nextProbe) {
		s.now = s.nextBookmark
		s.currentAt = s.lastProbe // A bookmark proves that the state has everything from before the last probe.
		s.nextBookmark = s.nextBookmark.Add(s.bookmarkEvery)
		return
	}
	s.now = nextProbe
	s.lastProbe = nextProbe
	s.probes++
	s.progressAgeReached = s.age() >= s.schedule.progressAge
}

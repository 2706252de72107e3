package clock

import (
	"testing"
	"time"
)

// TestAsOf: in an outage, ages are measured at the time at which an API server was last heard, until the bound is over. What a
// stream keeps up to date has as much time again after the outage, but no more than resumeWithin.
func TestAsOf(t *testing.T) {
	const bound = time.Minute
	heard := time.Now()
	at := heard.Add
	never := Outage{}
	ongoing := Outage{Ongoing: true, LastHeard: heard}
	ended := func(began, ended time.Duration) Outage {
		return Outage{LastHeard: heard, Began: at(began), Ended: at(ended)}
	}
	endedAfter := func(length time.Duration) Outage { return ended(0, length) }
	for name, tt := range map[string]struct {
		outage            Outage
		now               time.Duration // since an API server was last heard
		standsStill       bool          // ages are measured at the time heard, and not now
		streamStandsStill bool          // what a stream keeps up to date has its age measured at the time heard
	}{
		"no outage":                                          {outage: never, now: time.Second},
		"in an outage":                                       {outage: ongoing, now: bound - 1, standsStill: true, streamStandsStill: true},
		"in an outage beyond the bound":                      {outage: ongoing, now: bound},
		"just after a long outage":                           {outage: endedAfter(20 * time.Second), now: 20*time.Second + resumeWithin - 1, streamStandsStill: true},
		"some time after a long outage":                      {outage: endedAfter(20 * time.Second), now: 20*time.Second + resumeWithin},
		"just after a short outage":                          {outage: endedAfter(time.Second), now: 2*time.Second - 1, streamStandsStill: true},
		"some time after a short outage":                     {outage: endedAfter(time.Second), now: 2 * time.Second},
		"some time after a short outage of a quiet upstream": {outage: ended(4*time.Second, 5*time.Second), now: 6 * time.Second},
		"just after an outage of nearly the bound, within the bound": {
			outage: endedAfter(bound - 2*time.Second), now: bound - 1, streamStandsStill: true,
		},
		"just after an outage of nearly the bound, beyond it": {outage: endedAfter(bound - 2*time.Second), now: bound},
	} {
		asOf := func(standsStill bool) time.Time {
			if standsStill {
				return heard
			}
			return at(tt.now)
		}
		if got, want := tt.outage.AsOf(at(tt.now), bound), asOf(tt.standsStill); !got.Equal(want) {
			t.Errorf("%s: AsOf: got %v after an API server was last heard, want %v", name, got.Sub(heard), want.Sub(heard))
		}
		if got, want := tt.outage.AsOfWithoutStream(at(tt.now), bound), asOf(tt.streamStandsStill); !got.Equal(want) {
			t.Errorf("%s: AsOfWithoutStream: got %v after an API server was last heard, want %v", name, got.Sub(heard), want.Sub(heard))
		}
	}
}

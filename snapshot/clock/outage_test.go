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
		frozen            bool          // AsOf returns the time at which an API server was last heard; false: now
		frozenForStreamed bool          // The same of AsOfWithoutStream.
	}{
		"no outage": {outage: never, now: time.Second},

		"an outage, within the bound": {outage: ongoing, now: bound - 1, frozen: true, frozenForStreamed: true},
		"an outage, beyond the bound": {outage: ongoing, now: bound},

		"just after a short outage":      {outage: endedAfter(time.Second), now: 2*time.Second - 1, frozenForStreamed: true},
		"some time after a short outage": {outage: endedAfter(time.Second), now: 2 * time.Second},
		"some time after a short outage of a quiet upstream": {
			outage: ended(4*time.Second, 5*time.Second), now: 6 * time.Second,
		},

		"just after a long outage": {
			outage: endedAfter(20 * time.Second), now: 20*time.Second + resumeWithin - 1, frozenForStreamed: true,
		},
		"some time after a long outage": {outage: endedAfter(20 * time.Second), now: 20*time.Second + resumeWithin},
		"just after a long outage, within the bound": {
			outage: endedAfter(bound - 2*time.Second), now: bound - 1, frozenForStreamed: true,
		},
		"just after a long outage, beyond the bound": {outage: endedAfter(bound - 2*time.Second), now: bound},
	} {
		asOf := func(frozen bool) time.Time {
			if frozen {
				return heard
			}
			return at(tt.now)
		}
		if got, want := tt.outage.AsOf(at(tt.now), bound), asOf(tt.frozen); !got.Equal(want) {
			t.Errorf("%s: AsOf: got %v after an API server was last heard, want %v", name, got.Sub(heard), want.Sub(heard))
		}
		if got, want := tt.outage.AsOfWithoutStream(at(tt.now), bound), asOf(tt.frozenForStreamed); !got.Equal(want) {
			t.Errorf("%s: AsOfWithoutStream: got %v after an API server was last heard, want %v", name, got.Sub(heard), want.Sub(heard))
		}
	}
}

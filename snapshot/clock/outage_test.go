package clock

import (
	"testing"
	"time"
)

// TestAsOf: in an outage, AsOf returns the time at which an API server was last heard, until this is as long ago as the bound.
// At other times it returns now. AsOfWithoutStream does the same, but counts a time after the outage as part of it: as much
// time as the outage has lasted, but at most maxReopenTime, 5 s.
func TestAsOf(t *testing.T) {
	const bound = 60 * time.Second
	const moment = time.Nanosecond
	heard := time.Now() // An API server was last heard then. All times in the cases are counted from it.
	lasting := Outage{Ongoing: true, LastHeard: heard, Began: heard}
	outage := func(began, ended time.Duration) Outage {
		return Outage{LastHeard: heard, Began: heard.Add(began), Ended: heard.Add(ended)}
	}
	for name, tt := range map[string]struct {
		outage            Outage
		now               time.Duration
		want              time.Duration // the time that AsOf returns; 0 is the time at which an API server was last heard
		wantWithoutStream time.Duration // the same for AsOfWithoutStream
	}{
		"no outage": {outage: Outage{}, now: 1 * time.Second, want: 1 * time.Second, wantWithoutStream: 1 * time.Second},

		"in an outage, just before the bound": {outage: lasting, now: bound - moment, want: 0, wantWithoutStream: 0},
		"in an outage, at the bound":          {outage: lasting, now: bound, want: bound, wantWithoutStream: bound},

		"less than 1s after an outage of 1s": {
			outage: outage(0, 1*time.Second), now: 2*time.Second - moment, want: 2*time.Second - moment, wantWithoutStream: 0,
		},
		"1s after an outage of 1s": {
			outage: outage(0, 1*time.Second), now: 2 * time.Second, want: 2 * time.Second, wantWithoutStream: 2 * time.Second,
		},
		"1s after an outage of 1s that began 4s after an API server was heard": {
			outage: outage(4*time.Second, 5*time.Second), now: 6 * time.Second, want: 6 * time.Second, wantWithoutStream: 6 * time.Second,
		},

		"less than 5s after an outage of 20s": {
			outage: outage(0, 20*time.Second), now: 25*time.Second - moment, want: 25*time.Second - moment, wantWithoutStream: 0,
		},
		"5s after an outage of 20s": {
			outage: outage(0, 20*time.Second), now: 25 * time.Second, want: 25 * time.Second, wantWithoutStream: 25 * time.Second,
		},
		"less than 5s after an outage of 58s, just before the bound": {
			outage: outage(0, 58*time.Second), now: bound - moment, want: bound - moment, wantWithoutStream: 0,
		},
		"less than 5s after an outage of 58s, at the bound": {
			outage: outage(0, 58*time.Second), now: bound, want: bound, wantWithoutStream: bound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := heard.Add(tt.now)
			if got := tt.outage.AsOf(now, bound).Sub(heard); got != tt.want {
				t.Errorf("AsOf: got %v after an API server was last heard, want %v", got, tt.want)
			}
			if got := tt.outage.AsOfWithoutStream(now, bound).Sub(heard); got != tt.wantWithoutStream {
				t.Errorf("AsOfWithoutStream: got %v after an API server was last heard, want %v", got, tt.wantWithoutStream)
			}
		})
	}
}

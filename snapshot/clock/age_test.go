package clock

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAge: an age is the longer one of those by the monotonic and by the wall clock.
func TestAge(t *testing.T) {
	at := time.Now()
	for name, tt := range map[string]struct {
		at, now time.Time
		want    time.Duration
	}{
		"by both clocks":    {at: at, now: at.Add(time.Minute), want: time.Minute},
		"by the wall clock": {at: at.Round(0), now: at.Round(0).Add(time.Hour), want: time.Hour},
		"suspended": {
			at: proxytest.EarlierByTheWallClock(at, time.Hour), now: at.Add(time.Minute), want: time.Hour + time.Minute,
		},
		"set back": {at: proxytest.EarlierByTheWallClock(at, -time.Hour), now: at.Add(time.Minute), want: time.Minute},
	} {
		if got := Age(tt.at, tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if got := Age(time.Time{}, at); got < 100*365*24*time.Hour {
		t.Errorf("what was never learned is %v old", got)
	}
}

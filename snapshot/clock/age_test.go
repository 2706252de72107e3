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
		"by both clocks":    {at, at.Add(time.Minute), time.Minute},
		"by the wall clock": {at.Round(0), at.Round(0).Add(time.Hour), time.Hour},
		"suspended":         {proxytest.EarlierByTheWallClock(at, time.Hour), at.Add(time.Minute), time.Hour + time.Minute},
		"set back":          {proxytest.EarlierByTheWallClock(at, -time.Hour), at.Add(time.Minute), time.Minute},
	} {
		if got := Age(tt.at, tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if got := Age(time.Time{}, at); got < 100*365*24*time.Hour {
		t.Errorf("what was never learned is %v old", got)
	}
}

package clock

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAge: Age is the time since then by the monotonic or by the wall clock, whichever is longer. The zero time is older
// than anything.
func TestAge(t *testing.T) {
	at := time.Now()
	for name, tt := range map[string]struct {
		at, now time.Time
		want    time.Duration
	}{
		"both clocks agree": {at: at, now: at.Add(time.Minute), want: time.Minute},
		// Round(0) strips the reading of the monotonic clock.
		"only the wall clock was read": {at: at.Round(0), now: at.Round(0).Add(time.Hour), want: time.Hour},
		"the machine was suspended for an hour": {
			at: proxytest.EarlierByTheWallClock(at, time.Hour), now: at.Add(time.Minute), want: time.Hour + time.Minute,
		},
		"the wall clock was set back an hour": {
			at: proxytest.EarlierByTheWallClock(at, -time.Hour), now: at.Add(time.Minute), want: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Age(tt.at, tt.now); got != tt.want {
				t.Errorf("got age %v, want %v", got, tt.want)
			}
		})
	}
	const century = 100 * 365 * 24 * time.Hour
	if got := Age(time.Time{}, at); got < century {
		t.Errorf("the zero time: got age %v, want at least %v", got, century)
	}
}

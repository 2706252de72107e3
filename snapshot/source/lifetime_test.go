package source

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestEnded: a watch was over at its timeout at the latest, by either clock.
func TestEnded(t *testing.T) {
	asked := time.Now()
	life := lifetime{asked: asked, answered: asked.Add(20 * time.Second), timeout: time.Minute}
	due := asked.Add(80 * time.Second)
	for _, tt := range []struct {
		now     time.Time
		at      time.Time
		inOrder bool
	}{
		{asked.Add(58 * time.Second), asked.Add(58 * time.Second), false},
		{asked.Add(59 * time.Second), asked.Add(59 * time.Second), true},
		{asked.Add(90 * time.Second), due, true},
		{asked.Add(time.Hour), due, true},
	} {
		if at, inOrder := life.Ended(tt.now); !at.Equal(tt.at) || inOrder != tt.inOrder {
			t.Errorf("after %v: %v, %v", tt.now.Sub(asked), at.Sub(asked), inOrder)
		}
	}
	// The machine was suspended for an hour of which the monotonic clock knows nothing.
	life.answered = proxytest.EarlierByTheWallClock(life.answered, time.Hour)
	now := asked.Add(70 * time.Second)
	if at, _ := life.Ended(now); clock.Age(at, now) < time.Hour-time.Minute {
		t.Errorf("a watch that ended an hour ago is over since %v", clock.Age(at, now))
	}
}

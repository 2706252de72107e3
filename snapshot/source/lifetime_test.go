package source

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestLifetime: a watch was over at its timeout at the latest, by either clock.
func TestLifetime(t *testing.T) {
	asked := time.Now()
	life := lifetime{sentAt: asked, answeredAt: asked.Add(20 * time.Second), timeout: time.Minute}
	due := asked.Add(80 * time.Second)
	for _, tt := range []struct {
		now         time.Time
		wantAt      time.Time
		wantTimeout bool
	}{
		{now: asked.Add(58 * time.Second), wantAt: asked.Add(58 * time.Second)},
		{now: asked.Add(59 * time.Second), wantAt: asked.Add(59 * time.Second), wantTimeout: true},
		{now: asked.Add(90 * time.Second), wantAt: due, wantTimeout: true},
		{now: asked.Add(time.Hour), wantAt: due, wantTimeout: true},
	} {
		at, timeout := life.LatestEnd(tt.now), life.reachedTimeout(tt.now)
		if !at.Equal(tt.wantAt) || timeout != tt.wantTimeout {
			t.Errorf("after %v: ended after %v, at the timeout: %t; want %v, %t",
				tt.now.Sub(asked), at.Sub(asked), timeout, tt.wantAt.Sub(asked), tt.wantTimeout)
		}
	}
	// The machine was suspended for an hour of which the monotonic clock knows nothing.
	life.answeredAt = proxytest.EarlierByTheWallClock(life.answeredAt, time.Hour)
	now := asked.Add(70 * time.Second)
	if at := life.LatestEnd(now); clock.Age(at, now) < time.Hour-time.Minute {
		t.Errorf("a watch that ended an hour ago is over since %v", clock.Age(at, now))
	}
}

package snapshot

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestSuspended: a state is as old as either clock says. The monotonic one stands still while the machine
// is suspended, and the wall clock can be set back.
func TestSuspended(t *testing.T) {
	const bound = 6 * time.Second
	now := time.Now()
	for name, tt := range map[string]struct {
		sent time.Time
		want reason.Reason
	}{
		"before the machine was suspended for an hour":    {proxytest.EarlierByTheWallClock(now.Add(-time.Second), time.Hour), reason.Stale},
		"long ago, before the clock was set back an hour": {proxytest.EarlierByTheWallClock(now.Add(-time.Minute), -time.Hour), reason.Stale},
		"just now, before the clock was set back an hour": {proxytest.EarlierByTheWallClock(now.Add(-time.Second), -time.Hour), reason.None},
	} {
		v := &View{absence: reason.None, heard: freshness.Probe{Sent: tt.sent}}
		if _, got := v.latest(now, bound, 0); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

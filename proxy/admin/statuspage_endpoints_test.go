package admin

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/upstream"
)

// TestEndpointsStatusOfNow: a state that began after the page did is not of the future.
func TestEndpointsStatusOfNow(t *testing.T) {
	now := time.Now()
	for since, want := range map[time.Duration]float64{-2 * time.Second: 2, time.Millisecond: 0} {
		got := endpointsStatus([]upstream.EndpointStats{{Since: now.Add(since)}}, now)
		if got[0].Seconds != want {
			t.Errorf("%v s since %v, want %v", got[0].Seconds, since, want)
		}
	}
}

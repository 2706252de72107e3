package differential_test

import (
	"strings"
	"testing"
)

// TestFirstState: what the other tests compare was loaded by streaming lists where the API server
// has them, and page by page where it has not.
func TestFirstState(t *testing.T) {
	cached := 0
	for _, r := range cluster.Resources {
		if r.Cached {
			cached++
		}
	}
	want := cached
	if *watchList {
		want = 0
	}
	// Loads after a restart of the API server say it again.
	if got := strings.Count(healthy.Log(), "loaded page by page"); got < want || want == 0 && got > 0 {
		t.Errorf("%d of %d collections were loaded page by page, want %d", got, cached, want)
	}
}

package source

import (
	"testing"
	"time"
)

// TestRhythm: a feed whose probes are answered at once, on a resource of which only the bookmarks
// of a stream tell, asks often enough, and leaves no stream whose bookmark comes in time.
func TestRhythm(t *testing.T) {
	for _, tt := range []struct {
		bound, bookmarks time.Duration
		leaves           bool
	}{
		{90 * time.Second, BookmarkEvery, false},
		{90 * time.Second, time.Hour, true},
		{5 * time.Minute, BookmarkEvery, false},
		{60 * time.Second, BookmarkEvery, true},
		{6 * time.Second, BookmarkEvery, true},
		{6 * time.Second, time.Second, false},
	} {
		for _, variety := range []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1} {
			testRhythm(t, newProbeSchedule(tt.bound, variety), tt.bound, tt.bookmarks, tt.leaves)
		}
	}
}

func testRhythm(t *testing.T, r probeSchedule, bound, bookmarks time.Duration, leaves bool) {
	t.Helper()
	start := time.Now()
	now, asked, currentAt, bookmark, probes, left := start, start, start, start.Add(bookmarks), 0, false
	for now.Sub(start) < 10*bound && !left {
		next := r.next(asked, currentAt)
		if bookmark.Before(next) {
			now, currentAt, bookmark = bookmark, asked, bookmark.Add(bookmarks)
		} else {
			now, asked, probes = next, next, probes+1
			left = now.Sub(currentAt) >= r.progress
		}
		if old := now.Sub(currentAt); old >= bound {
			t.Errorf("bound %v, bookmarks every %v: a state of %v", bound, bookmarks, old)
		}
	}
	if left != leaves {
		t.Errorf("bound %v, bookmarks every %v: left is %v, want %v", bound, bookmarks, left, leaves)
	}
	if atMost := int(now.Sub(start)/r.every) + 1; probes > atMost && !left {
		t.Errorf("bound %v, bookmarks every %v: %d probes in %v, want %d at most", bound, bookmarks, probes, now.Sub(start), atMost)
	}
}

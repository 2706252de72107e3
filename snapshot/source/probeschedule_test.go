package source

import (
	"testing"
	"time"
)

// TestProbeSchedule: a feed whose probes are answered at once, on a resource of which only the bookmarks
// of a stream tell, asks often enough, and leaves no stream whose bookmark comes in time.
func TestProbeSchedule(t *testing.T) {
	for _, tt := range []struct {
		bound, bookmarks time.Duration
		wantLeaves       bool // the stream
	}{
		{bound: 90 * time.Second, bookmarks: BookmarkEvery},
		{bound: 90 * time.Second, bookmarks: time.Hour, wantLeaves: true},
		{bound: 5 * time.Minute, bookmarks: BookmarkEvery},
		{bound: 60 * time.Second, bookmarks: BookmarkEvery, wantLeaves: true},
		{bound: 6 * time.Second, bookmarks: BookmarkEvery, wantLeaves: true},
		{bound: 6 * time.Second, bookmarks: time.Second},
	} {
		for _, spread := range []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1} {
			testProbeSchedule(t, newProbeSchedule(tt.bound, spread), tt.bound, tt.bookmarks, tt.wantLeaves)
		}
	}
}

func testProbeSchedule(t *testing.T, r probeSchedule, bound, bookmarks time.Duration, wantLeaves bool) {
	t.Helper()
	start := time.Now()
	now, asked, currentAt, bookmark, probes, left := start, start, start, start.Add(bookmarks), 0, false
	for now.Sub(start) < 10*bound && !left {
		next := r.next(asked, currentAt)
		if bookmark.Before(next) {
			now, currentAt, bookmark = bookmark, asked, bookmark.Add(bookmarks)
		} else {
			now, asked, probes = next, next, probes+1
			left = now.Sub(currentAt) >= r.progressAge
		}
		if old := now.Sub(currentAt); old >= bound {
			t.Errorf("bound %v, bookmarks every %v: a state of %v", bound, bookmarks, old)
		}
	}
	if left != wantLeaves {
		t.Errorf("bound %v, bookmarks every %v: left is %v, want %v", bound, bookmarks, left, wantLeaves)
	}
	if most := int(now.Sub(start)/r.pause) + 1; probes > most && !left {
		t.Errorf("bound %v, bookmarks every %v: %d probes in %v, want at most %d",
			bound, bookmarks, probes, now.Sub(start), most)
	}
}

package oracle

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBehind: the age of a state is that of the first confirmation which it lacks, whatever came in
// which order.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		var l Ledger[string]
		if got := l.Behind(1, time.Now()); got != 0 || l.Newest("pods") != 0 {
			t.Errorf("nothing was written: behind %v, newest %d", got, l.Newest("pods"))
		}
		begun := time.Now()
		for _, revision := range []uint64{10, 12, 11, 14, 14} { // at 0 s, 1 s, …
			l.Confirmed("pods", revision)
			time.Sleep(time.Second)
		}
		if l.Newest("pods") != 14 {
			t.Errorf("newest %d", l.Newest("pods"))
		}
		for _, tt := range []struct {
			revision uint64
			asked    time.Duration // after the beginning
			behind   time.Duration
			tooOld   bool
		}{
			{revision: 14, asked: time.Hour},
			{revision: 15, asked: time.Hour},
			{revision: 12, asked: 2 * time.Second}, // 14 was written later
			{revision: 13, asked: 3*time.Second + bound, behind: bound},
			{revision: 12, asked: 3*time.Second + bound + Tolerance, behind: bound + Tolerance},
			{revision: 12, asked: 4*time.Second + bound + Tolerance, behind: bound + Tolerance + time.Second, tooOld: true},
			{revision: 11, asked: 3 * time.Second, behind: 2 * time.Second}, // 12 was confirmed before it
			{revision: 10, asked: 3 * time.Second, behind: 2 * time.Second},
			{revision: 9, asked: time.Hour, behind: time.Hour, tooOld: true},
		} {
			behind := l.Behind(tt.revision, begun.Add(tt.asked))
			if behind != tt.behind || TooOld(behind, bound) != tt.tooOld {
				t.Errorf("revision %d, asked for after %v: behind %v (too old: %t), want %v (%t)",
					tt.revision, tt.asked, behind, TooOld(behind, bound), tt.behind, tt.tooOld)
			}
		}
	})
}

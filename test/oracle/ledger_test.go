package oracle

import (
	"math/rand/v2"
	"slices"
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

// TestLedgerKinds: a kind's writes are its own, and of all writes the recent ones may be asked for.
func TestLedgerKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Ledger[string]
		l.Confirmed("pods", 12)
		l.Confirmed("pods", 11)
		time.Sleep(time.Second)
		l.Confirmed("nodes", 20)
		l.Confirmed("nodes", 0) // the API server did not say which
		if got, want := []uint64{l.Newest("pods"), l.Newest("nodes"), l.Newest("leases"), l.NewestOfAll()},
			[]uint64{12, 20, 0, 20}; !slices.Equal(got, want) {
			t.Errorf("newest %v, want %v", got, want)
		}
		if l.OldestRecent() != 11 || l.Recent() == 0 {
			t.Errorf("the oldest is %d, a recent one %d", l.OldestRecent(), l.Recent())
		}
		for i := range uint64(3 * kept) {
			l.Confirmed("nodes", 21+i)
		}
		if n := len(l.all); n > 2*kept || l.OldestRecent() == 11 || l.Newest("pods") != 12 {
			t.Errorf("%d are kept, the oldest of the recent is %d, the newest pod %d", n, l.OldestRecent(), l.Newest("pods"))
		}
		l.Forget()
		if l.Recent() != 0 || l.NewestOfAll() != 0 || l.Behind(1, time.Now().Add(time.Hour)) != 0 {
			t.Error("something is not forgotten")
		}
	})
}

// TestPickBegins: nothing is asked for that was written before the beginning, but it must still be
// seen.
func TestPickBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ledger, rng := "pods", new(Ledger[string]), rand.New(rand.NewPCG(1, 1))
		ledger.Confirmed(r, 7)
		time.Sleep(time.Second)
		ledger.Begin()
		if revision, ok := ledger.Pick(rng, r, time.Minute); ok {
			t.Errorf("%d is from before the beginning", revision)
		}
		if got := ledger.Before(r, time.Now()); got != 7 {
			t.Errorf("%d must be seen, want 7", got)
		}
		ledger.Confirmed(r, 8)
		if revision, ok := ledger.Pick(rng, r, time.Minute); !ok || revision != 8 {
			t.Errorf("%d, %v, want 8", revision, ok)
		}
	})
}

package inflight

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// stays is the end of a long-running request that does not end.
func stays() {}

// TestUnacceptedPart: callers whom the upstream has not accepted have an eighth beside the long-running
// requests of the others, and one address half of that; who is accepted has a place among the others.
func TestUnacceptedPart(t *testing.T) {
	const most = 80
	a, err := New(Config{LongRunning: most})
	expect.NoError(t, err)
	key := func(i int) ShareKey { return ShareKey{byte(i), byte(i >> 8)} }
	admit := func(caller int, accepted bool) (*Place, error) {
		place, err := a.Admit(t.Context(), key(caller), accepted, stays)
		return &place, err
	}
	var unaccepted []*Place
	for i := range most {
		place, err := admit(i%2, false)
		if err == nil {
			unaccepted = append(unaccepted, place)
		} else if overload, is := errors.AsType[Overload](err); !is || overload == "" {
			t.Fatal(err)
		}
	}
	if len(unaccepted) != most/unacceptedPart {
		t.Errorf("%d of %d for callers who are not accepted", len(unaccepted), most)
	}
	if stats := a.Stats().LongRunning; stats.InUse != most/unacceptedPart || stats.Refused[OverloadCallerQueueFull]+stats.Refused[OverloadTimeOut] != uint64(most-len(unaccepted)) {
		t.Errorf("%+v", stats)
	}
	a.Accept(unaccepted[0], key(7))
	if _, err := admit(0, false); err != nil {
		t.Error("who was accepted has a place among the others still")
	}
	known := 0
	for i := range most {
		if _, err := admit(10+i, true); err == nil {
			known++
		}
	}
	if want := most - 1; known != want {
		t.Errorf("%d known callers came in, want %d", known, want)
	}
	for _, place := range unaccepted {
		place.Release()
		place.Release()
	}
	if stats := a.unaccepted.Stats(); stats.InUse != 1 || stats.Waiting != 0 {
		t.Errorf("%+v", stats)
	}
	if in := a.Stats().LongRunning.InUse; in != most { // one of them is unaccepted
		t.Errorf("%d are in use", in)
	}
	// What is short is nobody's but an address's.
	place, err := a.Admit(t.Context(), key(0), false, nil)
	expect.NoError(t, err)
	a.Accept(&place, key(1))
	place.Release()
	if stats := a.Stats().Short; stats.InUse != 0 {
		t.Errorf("%+v", stats)
	}
}

// TestNewTokensOfOneCaller: who has a new token for each watch has half, and beyond that counts as
// not accepted.
func TestNewTokensOfOneCaller(t *testing.T) {
	const most = 64
	a, err := New(Config{LongRunning: most})
	expect.NoError(t, err)
	address, subject, other := ShareKey{1}, ShareKey{2}, ShareKey{3}
	var places []*Place
	for range 2 * most {
		place, err := a.Admit(t.Context(), address, false, stays)
		if err != nil {
			break
		}
		a.Accept(&place, subject)
		places = append(places, &place)
	}
	if want := most/2 + most/unacceptedPart/2; len(places) != want {
		t.Errorf("one caller has %d of %d, want %d", len(places), most, want)
	}
	if _, err := a.Admit(t.Context(), other, true, stays); err != nil {
		t.Errorf("another caller: %v", err)
	}
	for _, place := range places {
		place.Release()
	}
	if long, unaccepted := a.long.Stats(), a.unaccepted.Stats(); long.InUse != 1 || unaccepted.InUse != 0 {
		t.Errorf("when all have ended: %+v, %+v", long, unaccepted)
	}
}

// TestNoPartWithoutABound: 0 is any number, also of callers who are not accepted.
func TestNoPartWithoutABound(t *testing.T) {
	a, err := New(Config{})
	expect.NoError(t, err)
	for range 1000 {
		if _, err := a.Admit(t.Context(), ShareKey{}, false, stays); err != nil {
			t.Fatal(err)
		}
	}
}

// fullOfLong returns Bounds whose long-running requests are all those of two callers; each ends, in a
// while, when it is told to. ended counts these by caller.
func fullOfLong(t *testing.T, most int, takes time.Duration) (a *Bounds, ended *[2]atomic.Int32) {
	t.Helper()
	a, err := New(Config{LongRunning: most, Wait: time.Second})
	expect.NoError(t, err)
	ended = new([2]atomic.Int32)
	for i := range most {
		place := new(Place)
		*place, err = a.Admit(t.Context(), ShareKey{byte(i % 2)}, true, func() {
			ended[i%2].Add(1)
			time.AfterFunc(takes, place.Release)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, ended
}

// TestPlacesAreTaken: where two callers have all long-running requests, others get places of theirs,
// but no more than the two keep, and only callers whom the upstream knows.
func TestPlacesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64
		a, ended := fullOfLong(t, most, time.Millisecond)
		if _, err := a.Admit(t.Context(), ShareKey{9}, false, stays); err != nil || ended[0].Load()+ended[1].Load() > 0 {
			t.Errorf("a place was taken for somebody unknown: %v", err)
		}
		if _, err := a.Admit(t.Context(), ShareKey{0}, true, stays); !errors.Is(err, OverloadCallerQueueFull) {
			t.Errorf("a place was taken for one who has as many: %v", err)
		}
		for i := range 3 {
			if _, err := a.Admit(t.Context(), ShareKey{2}, true, stays); err != nil {
				t.Errorf("number %d of another caller: %v", i, err)
			}
		}
		came := make(chan bool)
		for range most { // at once
			go func() {
				_, err := a.Admit(t.Context(), ShareKey{3}, true, stays)
				came <- err == nil
			}()
		}
		many := 0
		for range most {
			if <-came {
				many++
			}
		}
		for range most { // one after the other
			if _, err := a.Admit(t.Context(), ShareKey{3}, true, stays); err != nil {
				break
			}
			many++
		}
		if want := 20; many != want { // as many as the two keep: (64 - 3) / 3
			t.Errorf("a caller who came late has %d, want %d", many, want)
		}
		if ended[0].Load() != 11 || ended[1].Load() != 12 {
			t.Errorf("ended: %d, %d", ended[0].Load(), ended[1].Load())
		}
		if in := a.long.Stats().InUse; in != most || len(a.taking) != 0 {
			t.Errorf("%d are in use, %d wait", in, len(a.taking))
		}
	})
}

// TestPlaceThatIsNotGivenBack: a place counts until its request has ended, however long that takes.
func TestPlaceThatIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8
		a, ended := fullOfLong(t, most, time.Hour)
		if _, err := a.Admit(t.Context(), ShareKey{2}, true, stays); !errors.Is(err, OverloadTimeOut) {
			t.Errorf("there was a place: %v", err)
		}
		if ended[0].Load()+ended[1].Load() != 1 || len(a.taking) != 0 {
			t.Errorf("%d wait", len(a.taking))
		}
		time.Sleep(time.Hour)
		if _, err := a.Admit(t.Context(), ShareKey{2}, true, stays); err != nil || ended[0].Load()+ended[1].Load() != 1 {
			t.Errorf("ended: %v", err)
		}
	})
}

// TestPlacesAreTakenAtAPace: who opens and ends requests does not end any number of others'.
func TestPlacesAreTakenAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1000
		a, ended := fullOfLong(t, most, time.Microsecond)
		for range most {
			place, err := a.Admit(t.Context(), ShareKey{2}, true, stays)
			if err != nil {
				continue
			}
			place.Release()
			if _, err := a.Admit(t.Context(), ShareKey{byte(3)}, true, stays); err != nil { // the place is in use again
				t.Fatal(err)
			}
		}
		if n := ended[0].Load() + ended[1].Load(); n != takesAtOnce {
			t.Errorf("%d were ended", n)
		}
	})
}

// TestNewcomersAreAccepted: who comes when all places are in use gets one of those who have most when it
// is accepted, as long as it has fewer; beyond that its requests end.
func TestNewcomersAreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64
		a, ended := fullOfLong(t, most, time.Millisecond)
		address, newcomer := ShareKey{9}, ShareKey{2}
		var places []*Place
		const share = 21 // as many as the others then have
		for range share {
			place, err := a.Admit(t.Context(), address, false, stays)
			if err != nil {
				t.Fatalf("number %d: %v", len(places), err)
			}
			a.Accept(&place, newcomer)
			places = append(places, &place)
			if in := a.unaccepted.Stats().InUse; in != 0 {
				t.Fatalf("number %d is its address's", len(places))
			}
		}
		if n := ended[0].Load() + ended[1].Load(); n != share || a.Stats().Taken != share || len(a.taking) != 0 {
			t.Errorf("%d were ended for it", n)
		}
		if in := a.long.Stats().InUse; in != most+share {
			t.Errorf("%d are in use until those end", in)
		}
		if _, err := a.Admit(t.Context(), ShareKey{3}, true, stays); err != nil { // waits until all have ended
			t.Errorf("another caller: %v", err)
		}
		if in := a.long.Stats().InUse; in != most {
			t.Errorf("%d are in use", in)
		}
		beyondEnded := false
		beyond, err := a.Admit(t.Context(), address, false, func() { beyondEnded = true })
		expect.NoError(t, err)
		a.Accept(&beyond, newcomer)
		if own := a.places.count(newcomer); own != share || !beyondEnded {
			t.Errorf("it has %d, one more has ended: %t", own, beyondEnded)
		}
		for _, place := range append(places, &beyond) {
			place.Release()
		}
		if in := a.Stats().LongRunning.InUse; in != most-share || a.places.count(newcomer) != 0 {
			t.Errorf("%d are in use when they have ended", in)
		}
	})
}

// TestWhoCanTakeNothing: who asks in vain again and again does not use up what others may take.
func TestWhoCanTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := fullOfLong(t, 8, time.Millisecond)
		for i := range 10 * takesAtOnce {
			for caller, may := range map[byte]bool{0: false, 2: i < 2} { // as many as the others, then
				if _, err := a.Admit(t.Context(), ShareKey{caller}, true, stays); (err == nil) != may {
					t.Fatalf("%d of caller %d: %v", i, caller, err)
				}
			}
		}
		if _, err := a.Admit(t.Context(), ShareKey{3}, true, stays); err != nil {
			t.Errorf("another caller: %v", err)
		}
	})
}

// TestRefusedBodiesAreCounted: those that have waited in vain, once, and not those that wait again.
func TestRefusedBodiesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Bytes: 100, Wait: 5 * time.Second})
		expect.NoError(t, err)
		for i := range byte(2) {
			if _, ok := a.TryAdmitBody(ShareKey{i}, 50); !ok {
				t.Fatal("no room")
			}
		}
		for i, tt := range []struct {
			waited, atMost time.Duration
			want           error
			counted        uint64
		}{
			{0, time.Second, ErrNotYet, 0},
			{time.Second, 0, ErrNotYet, 0},
			{0, time.Hour, OverloadTimeOut, 1},
			{time.Nanosecond, 5*time.Second - time.Nanosecond, OverloadTimeOut, 2},
			{4 * time.Second, time.Second, OverloadTimeOut, 3},
			{5 * time.Second, 0, OverloadTimeOut, 4},
			{6 * time.Second, time.Second, OverloadTimeOut, 5},
		} {
			begun := time.Now()
			_, err := a.AdmitBody(t.Context(), ShareKey{2}, 10, begun.Add(-tt.waited), tt.atMost)
			if took := time.Since(begun); !errors.Is(err, tt.want) || took != max(0, min(tt.atMost, 5*time.Second-tt.waited)) {
				t.Errorf("%d: %v after %v", i, err, took)
			}
			if got := a.Stats().Bytes.Refused[OverloadTimeOut]; got != tt.counted {
				t.Errorf("%d: %d are counted, want %d", i, got, tt.counted)
			}
		}
	})
}

// TestNoSpillForOnesOwn: who has waited in vain for its own answers uses up none of what may be
// forwarded instead.
func TestNoSpillForOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Bytes: 100, Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		greedy, modest := ShareKey{1}, ShareKey{2}
		for _, caller := range []ShareKey{greedy, modest} {
			if _, ok := a.TryAdmitBody(caller, 40); !ok {
				t.Fatal("no room")
			}
		}
		for range 2 * spillsAtOnce {
			if _, err := a.AdmitBody(t.Context(), greedy, 20, time.Now(), time.Second); a.Spill(err) || !errors.Is(err, OverloadTimeOut) {
				t.Errorf("spilled for one's own: %v", err)
			}
		}
		if _, err := a.AdmitBody(t.Context(), ShareKey{3}, 30, time.Now(), time.Second); !a.Spill(err) {
			t.Errorf("not spilled: %v", err)
		}
	})
}

package inflight

import (
	"errors"
	"testing"
)

// TestStrangersPart: callers whom the upstream has not accepted have an eighth of the long-running requests, and
// one address half of that; a place of theirs is a caller's own when it is accepted.
func TestStrangersPart(t *testing.T) {
	const most = 80
	a, err := New(Config{LongRunning: most})
	if err != nil {
		t.Fatal(err)
	}
	key := func(i int) ShareKey { return ShareKey{byte(i), byte(i >> 8)} }
	admit := func(caller int, accepted bool) (*Place, error) {
		place, err := a.Admit(t.Context(), key(caller), accepted, true)
		return &place, err
	}
	var strangers []*Place
	for i := range most {
		place, err := admit(i%2, false)
		if err == nil {
			strangers = append(strangers, place)
		} else if overload, is := errors.AsType[Overload](err); !is || overload == "" {
			t.Fatal(err)
		}
	}
	if len(strangers) != most/strangersPart {
		t.Errorf("%d of %d for strangers", len(strangers), most)
	}
	if stats := a.Stats().LongRunning; stats.InUse != most/strangersPart || stats.Refused[OverloadCallerQueueFull]+stats.Refused[OverloadTimeOut] != uint64(most-len(strangers)) {
		t.Errorf("%+v", stats)
	}
	a.Accept(strangers[0], key(7))
	if _, err := admit(0, false); err != nil {
		t.Error("who was accepted has a stranger's place still")
	}
	known := 0
	for i := range most {
		if _, err := admit(10+i, true); err == nil {
			known++
		}
	}
	if want := most - most/strangersPart - 1; known != want {
		t.Errorf("%d known callers came in, want %d", known, want)
	}
	for _, place := range strangers {
		place.Release()
		place.Release()
	}
	if stats := a.strangers.Stats(); stats.InUse != 1 || stats.Waiting != 0 {
		t.Errorf("%+v", stats)
	}
	// What is short is nobody's but an address's.
	place, err := a.Admit(t.Context(), key(0), false, false)
	if err != nil {
		t.Fatal(err)
	}
	a.Accept(&place, key(1))
	place.Release()
	if stats := a.Stats().Short; stats.InUse != 0 {
		t.Errorf("%+v", stats)
	}
}

// TestNewTokensOfOneCaller: who has a new token for each watch has half, and is a stranger beyond that.
func TestNewTokensOfOneCaller(t *testing.T) {
	const most = 64
	a, err := New(Config{LongRunning: most})
	if err != nil {
		t.Fatal(err)
	}
	address, subject, other := ShareKey{1}, ShareKey{2}, ShareKey{3}
	var places []*Place
	for range 2 * most {
		place, err := a.Admit(t.Context(), address, false, true)
		if err != nil {
			break
		}
		a.Accept(&place, subject)
		places = append(places, &place)
	}
	if want := most/2 + most/strangersPart/2; len(places) != want {
		t.Errorf("one caller has %d of %d, want %d", len(places), most, want)
	}
	if _, err := a.Admit(t.Context(), other, true, true); err != nil {
		t.Errorf("another caller: %v", err)
	}
	for _, place := range places {
		place.Release()
	}
	if long, strangers := a.long.Stats(), a.strangers.Stats(); long.InUse != 1 || strangers.InUse != 0 {
		t.Errorf("when all have ended: %+v, %+v", long, strangers)
	}
}

// TestNoPartWithoutABound: 0 is any number, for strangers as well.
func TestNoPartWithoutABound(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := a.Admit(t.Context(), ShareKey{}, false, true); err != nil {
			t.Fatal(err)
		}
	}
}

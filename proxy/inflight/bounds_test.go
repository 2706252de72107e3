package inflight

import (
	"errors"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestUnacceptedPart: callers whom the upstream has not accepted have an eighth of the long-running
// requests, and one address half of that; a place of theirs is a caller's own when it is accepted.
func TestUnacceptedPart(t *testing.T) {
	const most = 80
	a, err := New(Config{LongRunning: most})
	expect.NoError(t, err)
	key := func(i int) ShareKey { return ShareKey{byte(i), byte(i >> 8)} }
	admit := func(caller int, accepted bool) (*Place, error) {
		place, err := a.Admit(t.Context(), key(caller), accepted, true)
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
	if want := most - most/unacceptedPart - 1; known != want {
		t.Errorf("%d known callers came in, want %d", known, want)
	}
	for _, place := range unaccepted {
		place.Release()
		place.Release()
	}
	if stats := a.unaccepted.Stats(); stats.InUse != 1 || stats.Waiting != 0 {
		t.Errorf("%+v", stats)
	}
	// What is short is nobody's but an address's.
	place, err := a.Admit(t.Context(), key(0), false, false)
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
		place, err := a.Admit(t.Context(), address, false, true)
		if err != nil {
			break
		}
		a.Accept(&place, subject)
		places = append(places, &place)
	}
	if want := most/2 + most/unacceptedPart/2; len(places) != want {
		t.Errorf("one caller has %d of %d, want %d", len(places), most, want)
	}
	if _, err := a.Admit(t.Context(), other, true, true); err != nil {
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
		if _, err := a.Admit(t.Context(), ShareKey{}, false, true); err != nil {
			t.Fatal(err)
		}
	}
}

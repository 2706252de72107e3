package discovery

import (
	"testing"
	"time"
	"unsafe"
)

// suspended is a reading of the clock from before the machine stood still for some whole seconds, which the wall clock has
// counted and the monotonic one has not. Nothing in package time makes one: it holds the seconds of the wall clock
// above 30 bits of nanoseconds, beside the monotonic reading.
func suspended(at time.Time, seconds uint64) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= seconds << 30 // #nosec G103 -- the first field
	return at
}

// TestHeardBeforeASuspension: what was heard before the machine stood still is as old as the wall clock says.
func TestHeardBeforeASuspension(t *testing.T) {
	s := &Schemas{up: true, known: map[string]definition{}}
	if s.Vouch() {
		t.Error("vouches before anything was heard")
	}
	s.heard.note()
	if !s.Vouch() {
		t.Error("does not vouch for what was heard just now")
	}
	before := s.heard.at
	s.heard.at = suspended(before, 3600)
	if d := before.Round(0).Sub(s.heard.at.Round(0)); d != time.Hour || s.heard.at.Sub(before) != 0 {
		t.Fatalf("not a suspension: by the wall clock %v, by the other %v", d, s.heard.at.Sub(before))
	}
	if s.Vouch() {
		t.Error("vouches for definitions from before the suspension")
	}
}

package snapshot

import (
	"errors"
	"testing"
	"time"
)

// TestMeasured: what was read of a state that did not fit keeps only one try from reading again: the objects
// that were read may have been larger than the others.
func TestMeasured(t *testing.T) {
	c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
	c.budget.Limit = 100 << 20
	f := &feed{collection: c, loads: make(chan struct{}, 1), measured: 1 << 20}
	is := learned{count: 1000, mean: 1 << 10}
	if _, err := f.load(t.Context(), is); !errors.Is(err, errFull) {
		t.Errorf("larger than the room for it: %v", err)
	}
	if !is.fits(c.budget, f.measured) {
		t.Error("it is never read again")
	}
}

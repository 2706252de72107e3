package body

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// TestMayBeOne: whatever the age of an object, and however it is written, two of its ages may be
// one object's if there is time between them, and not if one is much older.
func TestMayBeOne(t *testing.T) {
	for old := time.Duration(0); old < 20*365*24*time.Hour; old += old/50 + 777*time.Millisecond {
		for _, later := range []time.Duration{0, time.Millisecond, time.Second, 3 * time.Second, time.Minute} {
			a, b := duration.HumanDuration(old), duration.HumanDuration(old+later)
			if !mayBeOne(a, b, later) || !mayBeOne(b, a, later) {
				t.Errorf("%s and %s, %v apart, are taken for ages of two", a, b, later)
			}
		}
		if a, b := duration.HumanDuration(old), duration.HumanDuration(3*old+time.Minute); mayBeOne(a, b, time.Second) {
			t.Errorf("%s and %s are taken for one within a second", a, b)
		}
	}
}

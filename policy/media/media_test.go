package media

import (
	"slices"
	"testing"
)

func TestAll(t *testing.T) {
	got := All()
	slices.Sort(got)
	if len(slices.Compact(got)) != 4 || slices.Contains(got, "") {
		t.Errorf("representations %q", got)
	}
}

package wire

import (
	"fmt"
	"testing"
)

// TestLabelSets: equal sets are the same value, no label is there twice, and none that is not. (FuzzJSONObject and
// TestTreeAgainstAMap find those that are.)
func TestLabelSets(t *testing.T) {
	s := MustLabels("b", "2", "a", "", "key", "v=,\u00e4")
	if s != MustLabels("key", "v=,\u00e4", "a", "", "b", "2") {
		t.Error("equal sets differ")
	}
	for _, label := range []string{"", "c", "2", "ke", "v"} {
		if s.Has(label) {
			t.Errorf("%q is found", label)
		}
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("l%d", i), fmt.Sprint(i))
	}
	if large := MustLabels(many...); large.Size() < 40*3 {
		t.Errorf("a large set of %d bytes", large.Size())
	}
	for _, bad := range [][]string{append(many, "l7", "x"), {"a", "1", "a", "2"}, {"a\x00b", "1"}, {"a", "1\x00"}} {
		if _, err := MakeLabels(asBytes(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

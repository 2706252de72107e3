package wire

import (
	"fmt"
	"testing"
)

func TestLabelSets(t *testing.T) {
	s := MustLabels("b", "2", "a", "", "key", "v=,\u00e4")
	for label, want := range map[string]string{"a": "", "b": "2", "key": "v=,\u00e4"} {
		if got, found := s.Lookup(label); !found || got != want || !s.Has(label) || s.Get(label) != want {
			t.Errorf("%q: %q, %v", label, got, found)
		}
	}
	for _, label := range []string{"", "c", "2", "ke", "v"} {
		if s.Has(label) || (Labels{}).Has(label) {
			t.Errorf("%q is found", label)
		}
	}
	if s != MustLabels("key", "v=,\u00e4", "a", "", "b", "2") {
		t.Error("equal sets differ")
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("l%d", i), fmt.Sprint(i))
	}
	large := MustLabels(many...)
	if value, found := large.Lookup("l39"); !found || value != "39" || large.Has("l40") || large.Has("") || large.Size() < 40*3 {
		t.Errorf("a large set: %q, %v, %d bytes", value, found, large.Size())
	}
	if _, err := MakeLabels(append(many, "l7", "x")); err == nil {
		t.Error("a large set with a label twice is accepted")
	}
	for _, bad := range [][]string{{"a", "1", "a", "2"}, {"a\x00b", "1"}, {"a", "1\x00"}} {
		if _, err := MakeLabels(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

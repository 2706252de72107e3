package wire

import (
	"fmt"
	"testing"
)

// TestLabelSets: equal sets are the same value, no label is there twice, and none that is not. (FuzzJSONObject and
// TestTreeAgainstAMap find those that are.)
func TestLabelSets(t *testing.T) {
	s := mustLabels("b", "2", "a", "", "key", "v=,\u00e4")
	if s != mustLabels("key", "v=,\u00e4", "a", "", "b", "2") {
		t.Error("equal sets differ")
	}
	for _, label := range []string{"", "c", "2", "ke", "v"} {
		if s.Has(label) {
			t.Errorf("%q is found", label)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("l%d", i), fmt.Sprint(i))
	}
	if large := mustLabels(many...); large.Size() < 100*5 {
		t.Errorf("a large set of %d bytes", large.Size())
	}
	for _, bad := range [][]string{append(many, "l7", "x"), {"a", "1", "a", "2"}, {"a\x00b", "1"}, {"a", "1\x00"}} {
		if _, err := MakeLabels(asBytes(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// mustLabels returns the set of labels in pairs.
func mustLabels(pairs ...string) Labels {
	s, err := MakeLabels(asBytes(pairs))
	if err != nil {
		panic(err)
	}
	return s
}

func asBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

package wire

import (
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMissingLabels: Lookup and Get return no value for a label that a set lacks, whether the label's place would be first,
// last, or between others.
func TestMissingLabels(t *testing.T) {
	set, err := MakeLabels([][2][]byte{{[]byte("b"), []byte("2")}, {[]byte("d"), []byte("4")}})
	expect.NoError(t, err)
	expect.Same(t, "2", set.Get("b"))
	expect.Same(t, "4", set.Get("d"))
	for _, missing := range []string{"", "2", "a", "c", "e"} {
		if value, found := set.Lookup(missing); found || value != "" {
			t.Errorf("Lookup of %q: got %q (found: %t), want none", missing, value, found)
		}
		if value := set.Get(missing); value != "" {
			t.Errorf("Get of %q: got %q, want none", missing, value)
		}
	}
}

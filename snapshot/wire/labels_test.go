package wire

import "testing"

// TestMissingLabels: Lookup and Get return no value for a label that a set lacks, wherever it would stand in the order.
func TestMissingLabels(t *testing.T) {
	set, err := MakeLabels([][]byte{[]byte("b"), []byte("2"), []byte("d"), []byte("4")})
	if err != nil || set.Get("b") != "2" || set.Get("d") != "4" {
		t.Fatalf("b is %q and d is %q, want 2 and 4: %v", set.Get("b"), set.Get("d"), err)
	}
	for _, missing := range []string{"", "2", "a", "c", "e"} {
		if value, found := set.Lookup(missing); found || value != "" || set.Get(missing) != "" {
			t.Errorf("the value of %q: %q, %t; want none", missing, value, found)
		}
	}
}

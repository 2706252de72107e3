package oracle

import "fmt"

// shown is the number of bytes that Difference shows before and after a place.
const shown = 150

// Difference returns the lengths of two bodies, and both texts around the first byte in which they differ.
func Difference(got, want []byte) string {
	first := 0
	for first < len(got) && first < len(want) && got[first] == want[first] {
		first++
	}
	around := func(b []byte) []byte { return b[min(len(b), max(0, first-shown)):min(len(b), first+shown)] }
	return fmt.Sprintf("%d bytes, not %d; from byte %d on:\n  %q\n  %q", len(got), len(want), first, around(got), around(want))
}

package oracle

import "fmt"

// Difference returns the lengths of two bodies, and both texts around the first byte in which they differ.
func Difference(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	around := func(b []byte) []byte { return b[min(len(b), max(0, i-150)):min(len(b), i+150)] }
	return fmt.Sprintf("%d bytes, not %d; from byte %d on:\n  %q\n  %q", len(got), len(want), i, around(got), around(want))
}

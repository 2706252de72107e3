package index

import (
	"strconv"
	"testing"
)

// TestPageLimit: PageLimit returns how many objects from a key on fit into maxBytes, but at least 1. If all of them fit, it
// returns maxObjects.
func TestPageLimit(t *testing.T) {
	const objects, size = 10, 100 // their keys are "0" to "9", and each has 100 bytes
	tree := NewTree(withoutIndex)
	const number, revision = 0, 1 // PageLimit does not read them
	for i := range objects {
		tree.Set(NewObject(number, strconv.Itoa(i), revision, make([]byte, size)))
	}
	const maxObjects = 500
	for name, tt := range map[string]struct {
		from           string
		maxBytes, want int64
	}{
		"all objects fit":           {maxBytes: objects * size, want: maxObjects},
		"three objects fit":         {maxBytes: 3*size + 50, want: 3},
		"the last two objects fit":  {from: "8", maxBytes: 2 * size, want: maxObjects},
		"no object fits":            {maxBytes: size / 2, want: 1},
		"no object follows the key": {from: "x", maxBytes: size / 2, want: maxObjects},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tree.PageLimit(tt.from, maxObjects, tt.maxBytes); got != tt.want {
				t.Errorf("got limit %d, want %d", got, tt.want)
			}
		})
	}
}

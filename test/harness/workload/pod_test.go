package workload

import (
	"strings"
	"testing"
)

func TestPodNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for i := range 200_000 {
		name := unique(i)
		if len(name) != 5 || strings.ToLower(name) != name || seen[name] {
			t.Fatalf("unique(%d) = %q: not five lower-case characters of its own", i, name)
		}
		seen[name] = true
	}
}

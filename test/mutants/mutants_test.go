package main

import (
	"regexp"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMutantsApply: each is a change of the code as it is now. Whether a test notices is what
// make mutants finds out.
func TestMutantsApply(t *testing.T) {
	const root = "../.."
	mutants, err := readAll(root, regexp.MustCompile(""))
	expect.NoError(t, err)
	for _, m := range mutants {
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

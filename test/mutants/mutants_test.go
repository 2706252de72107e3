package main

import (
	"regexp"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMutantsApply: the text that a mutant replaces is in the code, exactly once. (make mutants finds out whether a test
// fails.)
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

package main

import (
	"regexp"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMutantsApply: the code has the text that a mutant replaces exactly once. (make mutants finds out whether a test fails.)
func TestMutantsApply(t *testing.T) {
	const root = "../.."
	mutants, err := readAll(root, regexp.MustCompile(""))
	expect.NoError(t, err)
	for _, m := range mutants {
		if _, err := m.changedFile(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

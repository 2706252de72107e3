package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
)

// What Cache-Status can say has to be explained where people look for it, and nothing else.
func TestDocsExplainEveryReason(t *testing.T) {
	want := map[string]bool{}
	for _, reason := range policy.Reasons() {
		want[string(reason)] = true
	}
	firstCell := regexp.MustCompile("(?m)^\\| ((?:`[a-z-]+`(?:, )?)+) \\|")
	word := regexp.MustCompile("`([a-z-]+)`")
	for _, file := range []string{"../../README.md", "../../docs/operations.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, cell := range firstCell.FindAllSubmatch(text, -1) {
			for _, w := range word.FindAllSubmatch(cell[1], -1) {
				if name := string(w[1]); name[0] != '-' { // a flag
					got[name] = true
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: reasons explained (-want +got):\n%s", file, diff)
		}
	}
}

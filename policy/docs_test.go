package policy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

// What Cache-Status can say has to be explained where people look for it, and nothing else.
func TestDocsExplainEveryReason(t *testing.T) {
	want := map[string]bool{}
	for _, reason := range reason.Forwarding() {
		want[string(reason)] = true
	}
	firstCell := regexp.MustCompile("(?m)^\\| ((?:`[a-z-]+`(?:, )?)+) \\|")
	word := regexp.MustCompile("`([a-z-]+)`")
	text, err := os.ReadFile("../docs/operations.md")
	expect.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Reasons\n")
	if !found {
		t.Fatal("docs/operations.md has no section of reasons")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	got := map[string]bool{}
	for _, cell := range firstCell.FindAllStringSubmatch(section, -1) {
		for _, w := range word.FindAllStringSubmatch(cell[1], -1) {
			if name := w[1]; name[0] != '-' { // a flag
				got[name] = true
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/operations.md: reasons explained (-want +got):\n%s", diff)
	}
}

// The documented policy file is the one in the repository, and is right.
func TestDocsPolicy(t *testing.T) {
	text, err := os.ReadFile("../docs/policy.md")
	expect.NoError(t, err)
	example, err := os.ReadFile("../docs/policy.example.yaml")
	expect.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(blocks) != 1 || string(blocks[0][1]) != string(example) {
		t.Fatalf("docs/policy.md has %d examples, or not the one of policy.example.yaml", len(blocks))
	}
	if _, err := policy.ParseConfig("policy.example.yaml", example); err != nil {
		t.Error(err)
	}
}

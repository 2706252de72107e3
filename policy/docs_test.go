package policy_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
)

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

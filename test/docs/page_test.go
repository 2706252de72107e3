package docs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
)

const (
	page  = "../../docs/policy.md"
	begin = "<!-- reference: made from package policy by make policy-docs -->\n"
	end   = "<!-- end of reference -->\n"
)

var update = flag.Bool("update", false, "write the reference in docs/policy.md")

// TestPage: the reference in docs/policy.md is what package policy says of itself.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	expect.NoError(t, err)
	before, rest, begun := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("%s has no %q … %q", page, begin, end)
	}
	made := reference(t)
	if *update {
		expect.NoError(t, os.WriteFile(page, []byte(before+begin+made+end+after), 0o600))
		return
	}
	if diff := cmp.Diff(made, old); diff != "" {
		t.Errorf("make policy-docs writes it; (-package policy +docs/policy.md):\n%s", diff)
	}
}

package reason

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestAllAreDocumented: each constant in the source is a lower-case word: an RFC 8941 token for the Cache-Status header,
// and a metric label. It is in Forwarding, from which documentation and metrics take it, or a cause in
// docs/observability.md.
func TestAllAreDocumented(t *testing.T) {
	source, err := os.ReadFile("reason.go")
	expect.NoError(t, err)
	page, err := os.ReadFile("../../docs/observability.md")
	expect.NoError(t, err)
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, constant := range regexp.MustCompile(` Reason += "(.+)"`).FindAllSubmatch(source, -1) {
		r := Reason(constant[1])
		if !word.MatchString(string(r)) {
			t.Errorf("%q is not a lower-case word", r)
		}
		if !slices.Contains(Forwarding(), r) && !strings.Contains(string(page), "`"+string(r)+"`") {
			t.Errorf("%s is neither in Forwarding nor in docs/observability.md", r)
		}
	}
}

// TestReasons: a reason to forward occurs once, and is explained in one sentence, unlike all others, with a remedy.
func TestReasons(t *testing.T) {
	all := Forwarding()
	for i, r := range all {
		if slices.Contains(all[:i], r) {
			t.Errorf("%q occurs twice", r)
		}
	}
	slices.Reverse(Forwarding()) // a caller may change its slice
	expect.Same(t, all, Forwarding())
	seen := map[string]Reason{}
	for _, r := range Forwarding() {
		sentence, remedy := r.Explain()
		if !strings.HasSuffix(sentence, ".") || strings.Contains(sentence, ". ") {
			t.Errorf("%s: %q is not one sentence", r, sentence)
		}
		if remedy == "" {
			t.Errorf("%s: nobody knows what to do", r)
		}
		if other, found := seen[sentence]; found {
			t.Errorf("%s is explained by %q, as is %s", r, sentence, other)
		}
		seen[sentence] = r
	}
	if sentence, remedy := None.Explain(); sentence != "" || remedy != "" {
		t.Errorf("no reason is explained as %q, %q", sentence, remedy)
	}
}

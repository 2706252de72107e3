package reason

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// allReasons returns the constants in the source, so that the tests below miss none.
func allReasons(t *testing.T) (all []Reason) {
	t.Helper()
	source, err := os.ReadFile("reason.go")
	expect.NoError(t, err)
	for _, constant := range regexp.MustCompile(` Reason += "(.+)"`).FindAllSubmatch(source, -1) {
		all = append(all, Reason(constant[1]))
	}
	if len(all) == 0 {
		t.Fatal("reason.go has no constants in the form that this test reads")
	}
	return all
}

// TestReasonsAreWords: each reason has lower-case words, joined by hyphens, since it is an RFC 8941 token in the Cache-Status
// header, and a metric label.
func TestReasonsAreWords(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, r := range allReasons(t) {
		if !word.MatchString(string(r)) {
			t.Errorf("%q is not a lower-case word", r)
		}
	}
}

// TestAllAreDocumented: each reason is in Forwarding, which docs/reference.md lists, or is named as a cause in
// docs/observability.md.
func TestAllAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	expect.NoError(t, err)
	for _, r := range allReasons(t) {
		if !slices.Contains(Forwarding(), r) && !strings.Contains(string(page), "`"+string(r)+"`") {
			t.Errorf("%s is neither in Forwarding nor in docs/observability.md", r)
		}
	}
}

// TestExplain: every reason to forward has a remedy, and an explanation in one sentence that no other reason has.
func TestExplain(t *testing.T) {
	explained := map[string]Reason{}
	for _, r := range Forwarding() {
		sentence, remedy := r.Explain()
		if !strings.HasSuffix(sentence, ".") || strings.Contains(sentence, ". ") || remedy == "" {
			t.Errorf("%s: got %q with the remedy %q, want one sentence and a remedy", r, sentence, remedy)
		}
		if other, found := explained[sentence]; found {
			t.Errorf("%s is explained by %q, as is %s", r, sentence, other)
		}
		explained[sentence] = r
	}
}

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

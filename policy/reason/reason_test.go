package reason

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestAllAreKnown reads the constants from the source: a reason that is declared and forgotten in
// Forwarding and Losses would be missing in the documentation and in metrics.
func TestAllAreKnown(t *testing.T) {
	source, err := os.ReadFile("reason.go")
	expect.NoError(t, err)
	var declared []Reason
	for _, constant := range regexp.MustCompile(` Reason += "(.*)"`).FindAllSubmatch(source, -1) {
		declared = append(declared, Reason(constant[1]))
	}
	known := append([]Reason{None}, Forwarding()...)
	for _, loss := range Losses() {
		if !slices.Contains(known, loss) {
			known = append(known, loss)
		}
	}
	expect.Same(t, declared, known)
}

// TestReasons: each is written as it is into a structured header (RFC 8941 token) and into metric labels. What is
// forwarded is explained in one sentence, unlike all others, and there is something to do.
func TestReasons(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for name, list := range map[string]func() []Reason{"forwarding": Forwarding, "losses": Losses} {
		all := list()
		for i, r := range all {
			if !word.MatchString(string(r)) || slices.Contains(all[:i], r) {
				t.Errorf("%s: %q is no lower-case word, or occurs twice", name, r)
			}
		}
		slices.Reverse(list()) // a caller may do what it wants with its list
		expect.Same(t, all, list())
	}
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

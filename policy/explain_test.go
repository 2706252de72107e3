package policy

import (
	"strings"
	"testing"
)

// TestEveryReasonIsExplained: in one sentence, and no other.
func TestEveryReasonIsExplained(t *testing.T) {
	seen := map[string]Reason{}
	for _, reason := range Reasons() {
		text := reason.Explain()
		if !strings.HasSuffix(text, ".") || strings.Contains(text, ". ") {
			t.Errorf("%s: %q is not one sentence", reason, text)
		}
		if other, found := seen[text]; found {
			t.Errorf("%s and %s are explained alike", reason, other)
		}
		seen[text] = reason
	}
	if len(explanations) != len(Reasons()) {
		t.Errorf("%d explanations of %d reasons", len(explanations), len(Reasons()))
	}
	if text := Reason("").Explain(); text != "" {
		t.Errorf("no reason is explained as %q", text)
	}
}

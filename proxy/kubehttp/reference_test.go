package kubehttp

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/reference"
)

// TestReference: docs/reference.md has every reason to forward, and what to do about it.
func TestReference(t *testing.T) {
	table := reference.Head("detail", "fwd", "why", "if you want it from memory")
	for _, why := range reason.Forwarding() {
		_, fwd, _ := strings.Cut(CacheForwarded(why), "fwd=")
		fwd, _, _ = strings.Cut(fwd, ";")
		sentence, remedy := why.Explain()
		table += reference.Row("`"+string(why)+"`", fwd, sentence, remedy)
	}
	reference.Check(t, "../../docs/reference.md", "reasons", table)
}

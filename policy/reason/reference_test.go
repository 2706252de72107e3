package reason_test

import (
	"regexp"
	"testing"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/reference"
)

var fwdParameter = regexp.MustCompile(`fwd=([^;]+)`)

// TestReference: docs/reference.md has a row for each reason to forward, with the fwd parameter of Cache-Status (RFC 9211),
// what the reason means, and how to get the list from memory.
func TestReference(t *testing.T) {
	table := reference.Head("detail", "fwd", "why", "if you want it from memory")
	for _, why := range reason.Forwarding() {
		match := fwdParameter.FindStringSubmatch(kubehttp.CacheForwarded(why))
		sentence, remedy := why.Explain()
		table += reference.Row("`"+string(why)+"`", match[1], sentence, remedy)
	}
	reference.Check(t, "../../docs/reference.md", "reasons", table)
}

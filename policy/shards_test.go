package policy

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// The ranges of the lower and the upper half of all hashes.
const (
	lower = "'0x0000000000000000', '0x8000000000000000'"
	upper = "'0x8000000000000000', '0x10000000000000000'"
)

// TestParseShards: parseShards reads the spellings of clients as kube-apiserver does, and no others.
func TestParseShards(t *testing.T) {
	const uid, namespace = "shardRange(object.metadata.uid, ", "shardRange(object.metadata.namespace, "
	lowerHalf, upperHalf := namespace+lower+")", namespace+upper+")"
	for raw, want := range map[string]string{ // "" if raw is not read
		uid + lower + ")": uid + lower + ")",
		"  " + strings.ReplaceAll(lowerHalf, " ", "") + "||" + upperHalf + " ": lowerHalf + " || " + upperHalf,

		// No selector of shards, another field, or more than one.
		"":                 "",
		"x":                "",
		uid + lower:        "",
		uid + lower + "))": "",
		uid + lower + ") && " + uid + upper + ")":         "",
		uid + lower + ") || " + upperHalf:                 "", // ranges of two fields
		"shardRange(object.metadata.name, " + lower + ")": "",
		"\u00a0" + uid + lower + ")":                      "",
		// Numbers that are not 16 digits, ranges that are empty or too large.
		uid + "'0x8', '0x9')":                                "",
		uid + "'0x800000000000000G', '0x9000000000000000')":  "",
		uid + "'0x8000000000000000', '0x8000000000000000')":  "", // an empty range
		uid + "'0x8000000000000000', '0x20000000000000000')": "",
	} {
		got, ok := parseShards(raw)
		if ok != (want != "") {
			t.Errorf("%q: read: %t, want %t", raw, ok, want != "")
		} else if ok {
			expect.Same(t, want, got.String())
		}
	}
}

package policy

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// The bounds of the lower and the upper half of all hashes.
const (
	lower = "'0x0000000000000000', '0x8000000000000000'"
	upper = "'0x8000000000000000', '0x10000000000000000'"
)

// TestParseShards: parseShards reads the spellings of clients as kube-apiserver does, and no others.
func TestParseShards(t *testing.T) {
	uid := func(bounds string) string { return "shardRange(object.metadata.uid, " + bounds + ")" }
	namespace := func(bounds string) string { return "shardRange(object.metadata.namespace, " + bounds + ")" }
	for name, tt := range map[string]struct {
		raw  string
		want string // "" if raw must be refused
	}{
		"one range":            {raw: uid(lower), want: uid(lower)},
		"two ranges":           {raw: namespace(lower) + "||" + namespace(upper), want: namespace(lower) + " || " + namespace(upper)},
		"spaces around":        {raw: "  " + uid(lower) + " ", want: uid(lower)},
		"no spaces":            {raw: strings.ReplaceAll(uid(lower), " ", ""), want: uid(lower)},
		"empty":                {raw: ""},
		"not a shardRange":     {raw: "x"},
		"a missing bracket":    {raw: strings.TrimSuffix(uid(lower), ")")},
		"one bracket more":     {raw: uid(lower) + ")"},
		"joined with &&":       {raw: uid(lower) + " && " + uid(upper)},
		"two fields":           {raw: uid(lower) + " || " + namespace(upper)},
		"another field":        {raw: "shardRange(object.metadata.name, " + lower + ")"},
		"not an ASCII space":   {raw: "\u00a0" + uid(lower)},
		"fewer than 16 digits": {raw: uid("'0x8', '0x9'")},
		"not a digit":          {raw: uid("'0x800000000000000G', '0x9000000000000000'")},
		"an empty range":       {raw: uid("'0x8000000000000000', '0x8000000000000000'")},
		"too large":            {raw: uid("'0x8000000000000000', '0x20000000000000000'")},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseShards(tt.raw)
			expect.Same(t, tt.want != "", ok)
			if ok {
				expect.Same(t, tt.want, got.String())
			}
		})
	}
}

package policy

import "testing"

const lower, upper = "'0x0000000000000000', '0x8000000000000000'", "'0x8000000000000000', '0x10000000000000000'"

// TestParseShards: what kube-apiserver would read as the same selector, and nothing else.
func TestParseShards(t *testing.T) {
	const uid, namespace = "shardRange(object.metadata.uid, ", "shardRange(object.metadata.namespace, "
	for raw, want := range map[string]string{
		uid + lower + ")": uid + lower + ")",
		"  shardRange(object.metadata.namespace,'0x0000000000000000','0x8000000000000000')||" + namespace + upper + ") ": namespace + lower + ") || " + namespace + upper + ")",

		"":                 "",
		"x":                "",
		uid + lower:        "",
		uid + lower + "))": "",
		uid + lower + ") && " + uid + upper + ")":            "",
		uid + lower + ") || " + namespace + upper + ")":      "", // of two fields
		uid + "'0x8', '0x9')":                                "",
		uid + "'0x800000000000000G', '0x9000000000000000')":  "",
		uid + "'0x8000000000000000', '0x8000000000000000')":  "", // empty
		uid + "'0x8000000000000000', '0x20000000000000000')": "",
		"shardRange(object.metadata.name, " + lower + ")":    "",
		"\u00a0" + uid + lower + ")":                         "",
	} {
		got, ok := parseShards(raw)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %v, %v", raw, got, ok)
		}
	}
}

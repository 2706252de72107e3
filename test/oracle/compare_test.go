package oracle

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestPlain: both forms of a token are one, and all else stays.
func TestPlain(t *testing.T) {
	list := func(start, more string) []byte {
		token := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":7,"start":"` + start + `"}`))
		return []byte(`{"metadata":{"resourceVersion":"7","continue":"` + token + `"},"items":[` + more + `]}`)
	}
	if a, b := Plain(list("/ns/a", "")), Plain(list("ns/a", "")); string(a) != string(b) {
		t.Errorf("%s\nand\n%s", a, b)
	}
	if a, b := Plain(list("ns/a", "")), Plain(list("ns/b", "")); string(a) == string(b) {
		t.Error("other tokens are taken for the same")
	}
	if a, b := Plain(list("ns/a", "1")), Plain(list("ns/a", "2")); string(a) == string(b) {
		t.Error("other items are taken for the same")
	}
	for _, body := range []string{`{"items":[]}`, `{"continue":"no token"}`} {
		if got := Plain([]byte(body)); string(got) != body {
			t.Errorf("%s has become %s", body, got)
		}
	}
}

// TestDifference names the first byte that differs, also where one body ends.
func TestDifference(t *testing.T) {
	for _, tt := range []struct{ got, want, says string }{
		{"abc", "abd", "3 bytes, not 3; from byte 2 on"},
		{"ab", "abc", "2 bytes, not 3; from byte 2 on"},
		{strings.Repeat("x", 1000), "x", "1000 bytes, not 1; from byte 1 on"},
		{strings.Repeat("x", 1000), "", "1000 bytes, not 0; from byte 0 on"},
	} {
		if got := Difference([]byte(tt.got), []byte(tt.want)); !strings.HasPrefix(got, tt.says) {
			t.Errorf("%q, want %q", got, tt.says)
		}
	}
}

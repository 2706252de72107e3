package oracle

import (
	"encoding/base64"
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

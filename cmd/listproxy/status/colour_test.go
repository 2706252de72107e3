package status

import (
	"regexp"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/expect"
)

// TestColour: what is well is green and what is not is red, titles stand out, and the words are
// those without colour.
func TestColour(t *testing.T) {
	for _, healthy := range []bool{true, false} {
		var plain strings.Builder
		s := statusz.Status{Version: "v1", Healthy: healthy, Checks: []statusz.Check{{Name: "feeds", OK: healthy, Message: "a reason"}}}
		expect.NoError(t, s.WriteText(&plain))
		text := inColour(plain.String())
		want := green + "healthy" + normal
		if !healthy {
			want = red + "NOT HEALTHY" + normal
		}
		if !strings.Contains(text, want) || !strings.Contains(text, bold+"REQUESTS"+normal) {
			t.Errorf("healthy %t:\n%s", healthy, text)
		}
		if regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "") != plain.String() {
			t.Errorf("other words in colour:\n%s", text)
		}
	}
	if wantsColour(&strings.Builder{}) {
		t.Error("colour for what is no terminal")
	}
}

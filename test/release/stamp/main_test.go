package main

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

const made = `{
  "metadata": {
    "timestamp": "2026-11-21T20:00:00+01:00",
    "component": {
      "bom-ref": "pkg:golang/example.com/program@v0.0.0-2026-abc?type=module",
      "name": "example.com/program",
      "version": "v0.0.0-2026-abc"
    }
  },
  "components": [
    {"name": "example.com/other", "version": "v1.0.0"}
  ],
  "dependencies": [{"ref": "pkg:golang/example.com/program@v0.0.0-2026-abc?type=module"}]
}`

func TestStamp(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, run([]string{"--time", "2026-11-01T00:00:00Z"}, strings.NewReader(made), &out))
	want := strings.ReplaceAll(made, "2026-11-21T20:00:00+01:00", "2026-11-01T00:00:00Z")
	expect.Same(t, want, out.String())
}

func TestStampRefuses(t *testing.T) {
	for name, document := range map[string]string{"no JSON": "x", "no time": "{}"} {
		t.Run(name, func(t *testing.T) {
			if out, err := stamp([]byte(document), "now"); err == nil {
				t.Errorf("made %q", out)
			}
		})
	}
}

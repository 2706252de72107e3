package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSettle: what is shorter than safe is refused, and the message says what would be right; what
// is safe is not, and the default is.
func TestSettle(t *testing.T) {
	two := []string{"--upstream", "https://10.0.0.1:6443,https://10.0.0.2:6443"}
	for _, tt := range []struct {
		settle    string
		upstreams []string
		says      []string // none: it is taken
	}{
		{"0s", nil, []string{"--upstream-settle 0s is too short", "at least 9s (without --upstream)", "leave it out (15s)"}},
		{"8.999s", nil, []string{"--upstream-settle 8.999s", "at least 9s"}},
		{"-1s", nil, []string{"--upstream-settle -1s", "at least 9s"}},
		{"9s", nil, nil},
		{"9s", two, []string{"--upstream-settle 9s", "different versions", "at least 12s (with --upstream)", "leave it out (15s)"}},
		{"11.999s", two, []string{"--upstream-settle 11.999s", "at least 12s"}},
		{"12s", two, nil},
		{"15s", two, nil},
	} {
		o, err := parse(append([]string{"--upstream-settle", tt.settle}, tt.upstreams...)...)
		if (err != nil) != (len(tt.says) > 0) {
			t.Errorf("%s %v: %v", tt.settle, tt.upstreams, err)
		}
		for _, word := range tt.says {
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
		if want, _ := time.ParseDuration(tt.settle); err == nil && o.settle != want {
			t.Errorf("%s is %v", tt.settle, o.settle)
		}
	}
	for _, upstreams := range [][]string{nil, two} {
		if _, err := parse(upstreams...); err != nil {
			t.Errorf("the default, with %v: %v", upstreams, err)
		}
	}
}

// TestDocumentedSettle: docs/operations.md says what is refused.
func TestDocumentedSettle(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	alone, each := leastSettle(false), leastSettle(true)
	for _, want := range []string{
		fmt.Sprintf("%v at least, and %v with `--upstream` |", alone, each),
		fmt.Sprintf("until `--upstream-settle` after that (less than %d s, ", int(each.Seconds())),
		fmt.Sprintf("(A `--upstream-settle` of less than %d s, ", int(alone.Seconds())),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// Package expect says in one line what tests expect all the time.
package expect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// NoError ends a test with an error, if there is one.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Same says how what a test got differs from what it wants.
func Same(t testing.TB, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Says demands that a text has all these words.
func Says(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

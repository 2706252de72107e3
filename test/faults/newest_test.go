package faults

import (
	"testing"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestNewest: which lists have an age.
func TestNewest(t *testing.T) {
	for query, want := range map[string]bool{
		"":                               true,
		"limit=7":                        true,
		ask.AnyVersion:                   true,
		ask.NotOlderThan(7):              true,
		ask.Exactly(7):                   false,
		ask.FirstPage(7, ask.Exactly(7)): false,
		ask.NextPage(7, "a token"):       false,
	} {
		if got := (question{query: query}).newest(); got != want {
			t.Errorf("%q: %t, want %t", query, got, want)
		}
	}
}

package faults

import (
	"testing"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestRecent: which lists hold all that was written before, and what they are compared with.
func TestRecent(t *testing.T) {
	for query, want := range map[string]bool{
		"": true, "limit=7": true, ask.AnyVersion: false, ask.NotOlderThan(7): false, ask.Exactly(7): false, ask.NextPage(7, "a token"): false,
	} {
		if got := (question{query: query}).recent(); got != want {
			t.Errorf("%q: %t, want %t", query, got, want)
		}
	}
	if got, want := (question{query: "limit=7", limit: 7}).at(5).query, ask.FirstPage(7, ask.Exactly(5)); got != want {
		t.Errorf("a first page is compared with %q, want %q", got, want)
	}
}

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

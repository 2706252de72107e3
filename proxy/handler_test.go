package proxy

import (
	"slices"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot"
)

// TestAbsencesAreReasons: what a collection says is passed on as it is.
func TestAbsencesAreReasons(t *testing.T) {
	for _, absence := range snapshot.Absences() {
		if !slices.Contains(policy.Reasons(), policy.Reason(absence)) {
			t.Errorf("a collection may say %q, which is no reason", absence)
		}
	}
}

func TestCacheStatus(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{hit(policy.Exact), "listproxy; hit; detail=exact"},
		{forwarded(policy.ReasonMostRecent), "listproxy; fwd=bypass; detail=most-recent"},
		{forwarded(policy.ReasonWarming), "listproxy; fwd=miss; detail=warming"},
		{forwarded(policy.ReasonStale), "listproxy; fwd=stale; detail=stale"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// TestRepresentationsAreTheSame: two packages that do not know each other have the same words.
func TestRepresentationsAreTheSame(t *testing.T) {
	var kept, asked []string
	for _, r := range snapshot.Representations() {
		kept = append(kept, string(r))
	}
	for _, r := range policy.Representations() {
		asked = append(asked, string(r))
	}
	if !slices.Equal(kept, asked) {
		t.Errorf("package snapshot keeps %q, package policy asks for %q", kept, asked)
	}
}

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

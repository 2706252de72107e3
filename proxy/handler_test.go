package proxy

import (
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
)

func TestCacheStatus(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{hit(policy.Exact), "listproxy; hit; detail=exact"},
		{forwarded(reason.MostRecent), "listproxy; fwd=bypass; detail=most-recent"},
		{forwarded(reason.Warming), "listproxy; fwd=miss; detail=warming"},
		{forwarded(reason.Stale), "listproxy; fwd=stale; detail=stale"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

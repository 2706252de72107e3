package kubehttp

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/reference"
)

// TestReference: docs/reference.md has every reason to forward, and what to do about it.
func TestReference(t *testing.T) {
	table := reference.Head("detail", "fwd", "why", "if you want it from memory")
	for _, why := range reason.Forwarding() {
		_, fwd, _ := strings.Cut(CacheForwarded(why), "fwd=")
		fwd, _, _ = strings.Cut(fwd, ";")
		table += reference.Row("`"+string(why)+"`", fwd, why.Explain(), why.Remedy())
	}
	reference.Check(t, "../../docs/reference.md", "reasons", table)
}

// TestCacheStatus: the header's values, and that what is written is read.
func TestCacheStatus(t *testing.T) {
	for _, tt := range []struct {
		got, want string
		hit       bool
		detail    string
	}{
		{CacheHit(policy.Exact), "listproxy; hit; detail=exact", true, "exact"},
		{CacheForwarded(reason.MostRecent), "listproxy; fwd=bypass; detail=most-recent", false, "most-recent"},
		{CacheForwarded(reason.Warming), "listproxy; fwd=miss; detail=warming", false, "warming"},
		{CacheForwarded(reason.Stale), "listproxy; fwd=stale; detail=stale", false, "stale"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
		if hit, detail := ReadCacheStatus(tt.got); hit != tt.hit || detail != tt.detail {
			t.Errorf("%q is read as %t, %q", tt.got, hit, detail)
		}
	}
}

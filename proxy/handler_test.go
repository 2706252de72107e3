package proxy

import (
	"net/http"
	"slices"
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

// TestThrough: a request meets the filters in the order in which they are written down.
func TestThrough(t *testing.T) {
	var met []string
	named := func(name string) filter {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				met = append(met, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	end := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met = append(met, "end") })
	through(end, named("a"), named("b"), named("c")).ServeHTTP(nil, nil)
	if want := []string{"a", "b", "c", "end"}; !slices.Equal(met, want) {
		t.Errorf("got %q, want %q", met, want)
	}
}

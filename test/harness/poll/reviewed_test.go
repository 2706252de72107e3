package poll_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

func TestReviewed(t *testing.T) {
	const failed, hit = "listproxy; fwd=bypass; detail=review-failed", "listproxy; hit; detail=any"
	const unknown = "listproxy; fwd=bypass; detail=unknown-caller"
	for name, tt := range map[string]struct {
		says []string      // the last one again and again
		end  time.Duration // of ctx
		asks int           // 0: many
		last string
	}{
		"at once":               {[]string{hit, failed}, time.Hour, 1, hit},
		"a review failed":       {[]string{failed, failed, hit, failed}, time.Hour, 3, hit},
		"a text that has it":    {[]string{"Cache-Status: " + failed + "\nContent-Type: x", hit}, time.Hour, 2, hit},
		"a new caller":          {[]string{unknown, failed, hit, unknown}, time.Hour, 3, hit},
		"not allowed":           {[]string{"listproxy; fwd=bypass; detail=not-allowed", hit}, time.Hour, 1, "listproxy; fwd=bypass; detail=not-allowed"},
		"stale after a failure": {[]string{failed, "listproxy; fwd=stale; detail=stale", hit}, time.Hour, 2, "listproxy; fwd=stale; detail=stale"},
		"no answer":             {[]string{"", hit}, time.Hour, 1, ""},
		"never a review":        {[]string{failed}, time.Hour, 0, failed},
		"given up":              {[]string{failed}, time.Second, 0, failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.end)
				defer cancel()
				began, asks, last := time.Now(), 0, ""
				poll.Reviewed(ctx, time.Minute, func() string {
					last = tt.says[min(asks, len(tt.says)-1)]
					asks++
					return last
				})
				if last != tt.last || tt.asks != 0 && asks != tt.asks {
					t.Errorf("asked %d times, at last %q, want %d and %q", asks, last, tt.asks, tt.last)
				}
				if waited := time.Since(began); tt.asks == 0 && waited != min(tt.end, time.Minute) {
					t.Errorf("asked for %v", waited)
				}
			})
		})
	}
}

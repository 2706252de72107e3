package proxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestCertain: events wait while what they stand on is in doubt, but neither for long nor for a
// client that is gone.
func TestCertain(t *testing.T) {
	for name, tt := range map[string]struct {
		doubt, patience time.Duration
		want            bool
	}{
		"at once":       {0, time.Hour, true},
		"after a while": {doubtFor / 2, time.Hour, true},
		"never":         {time.Hour, time.Hour, false},
		"gone before":   {doubtFor / 2, doubtFor / 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
				defer cancel()
				begun := time.Now()
				if got := certain(ctx, func() bool { return time.Since(begun) >= tt.doubt }); got != tt.want {
					t.Errorf("got %t, want %t", got, tt.want)
				}
			})
		})
	}
}

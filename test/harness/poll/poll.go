// Package poll waits in tests for what must come.
//
// How long to wait at most is said by who waits, and only ends a test that fails: no test may pass
// because of it.
package poll

import (
	"context"
	"testing"
	"time"
)

// every is the time between two looks.
const every = 20 * time.Millisecond

// Until waits until done says so, and ends the test if that takes longer than patience. What is
// waited for is said as something that is true then.
func Until(t testing.TB, patience time.Duration, what string, done func() bool) {
	t.Helper()
	if !Came(t, patience, done) {
		t.Fatalf("still not: %s", what)
	}
}

// Came is Until for who has more to say when it is in vain: it reports whether done said so.
func Came(t testing.TB, patience time.Duration, done func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

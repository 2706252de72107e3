// Package poll waits in tests for what must come.
//
// The caller's patience only ends a test that fails. No test may pass because of it.
package poll

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// interval is the time between two looks.
const interval = 20 * time.Millisecond

// Until waits until done reports true, and ends the test if that takes longer than patience. what says what is true then, such
// as "the pod has ended".
func Until(t testing.TB, patience time.Duration, what string, done func() bool) {
	t.Helper()
	if !Await(t, patience, done) {
		t.Fatalf("still not: %s", what)
	}
}

// Await waits until done reports true, and reports false if that takes longer than patience.
func Await(t testing.TB, patience time.Duration, done func() bool) bool {
	t.Helper()
	err := Try(t.Context(), patience, interval, "it has come", func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
	return err == nil
}

// Wrong is an error that does not pass with time. It, or an error that wraps it, ends a [Try] at once.
type Wrong string

func (w Wrong) Error() string { return string(w) }

// Try calls look, with pauses, until it returns no error. It gives up at the first [Wrong], at the end of patience or of ctx,
// and returns the last error of look, together with what.
func Try(ctx context.Context, patience, pause time.Duration, what string, look func() error) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	var lastErr error
	for {
		err := look()
		if err == nil {
			return nil
		}
		if errors.As(err, new(Wrong)) {
			return fmt.Errorf("%s: %w", what, err)
		}
		// If a context has ended during the look, the error may only say so. Then the error of the look before says more. ctx
		// is checked as well, since bounded ends a moment after ctx.
		isCutShort := ctx.Err() != nil || bounded.Err() != nil
		if lastErr == nil || !isCutShort {
			lastErr = err
		}
		if !clock.Sleep(bounded, pause) {
			return fmt.Errorf("%s: not within %v: %w", what, time.Since(begun).Round(time.Millisecond), lastErr)
		}
	}
}

// retryPatience is longer than any wait that succeeds: after a long outage of the API server listproxy's streams wait up to
// 45 seconds before they try again.
const retryPatience = 3 * time.Minute

// Retry is [Try] with the patience of most tests.
func Retry(ctx context.Context, what string, look func() error) error {
	return Try(ctx, retryPatience, interval, what, look)
}

// Ticks yields 0, 1, 2 … at the ticks of a clock, until ctx ends. A tick that comes while the loop's body runs may be lost.
func Ticks(ctx context.Context, interval time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if !yield(n) {
					return
				}
			}
		}
	}
}

// ReviewFailed is the Cache-Status of a list that was forwarded because the review of its caller failed. A failure is not
// remembered: the next list is reviewed again.
const ReviewFailed = "listproxy; fwd=bypass; detail=" + string(reason.ReviewFailed)

// UnknownCaller is the Cache-Status of a list that was forwarded because kube-apiserver had not yet accepted its caller's
// token. After the answer to that list, listproxy knows the caller.
const UnknownCaller = "listproxy; fwd=bypass; detail=" + string(reason.UnknownCaller)

// UntilReviewed calls send until listproxy has reviewed whether the caller may have an answer from memory. send sends a request
// and returns the answer's Cache-Status. With [ReviewFailed] or [UnknownCaller] in it, the answer says nothing of what is in
// memory, and UntilReviewed calls send again. It gives up at the end of patience or ctx.
func UntilReviewed(ctx context.Context, patience time.Duration, send func() (cacheStatus string)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		cacheStatus := send()
		isReviewed := !strings.Contains(cacheStatus, ReviewFailed) && !strings.Contains(cacheStatus, UnknownCaller)
		if isReviewed || !clock.Sleep(ctx, interval) {
			return
		}
	}
}

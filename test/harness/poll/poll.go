// Package poll waits in tests for what must come.
//
// How long to wait at most is said by who waits, and only ends a test that fails: no test may pass
// because of it.
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
	return nil == Try(t.Context(), patience, every, "it has come", func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
}

// Wrong is an error that no waiting makes good. It, or what wraps it, ends a [Try] at once.
type Wrong string

func (w Wrong) Error() string { return string(w) }

// Try looks again and again, with a pause between two looks, until there is no error. It gives up
// with the first [Wrong], at the end of patience or at the end of ctx, and returns what was to come
// with the error of the last look.
func Try(ctx context.Context, patience, between time.Duration, what string, look func() error) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(outer, patience)
	defer cancel()
	begun, telling := time.Now(), error(nil)
	for {
		err := look()
		switch {
		case err == nil:
			return nil
		case errors.As(err, new(Wrong)):
			return fmt.Errorf("%s: %w", what, err)
		// The last look may have been cut short, which says nothing about why it was not the first.
		// The caller's context ends before ours, which is made of it, hears of that.
		case telling == nil || outer.Err() == nil && ctx.Err() == nil:
			telling = err
		}
		if !clock.Sleep(ctx, between) {
			return fmt.Errorf("%s: not within %v: %w", what, time.Since(begun).Round(time.Millisecond), telling)
		}
	}
}

// retryPatience is more than anything takes that comes: after a long unavailable of the API server
// listproxy's own streams wait up to 45 seconds before they try again.
const retryPatience = 3 * time.Minute

// Retry is [Try] with the patience of most tests.
func Retry(ctx context.Context, what string, look func() error) error {
	return Try(ctx, retryPatience, every, what, look)
}

// Ticks counts the ticks of a clock, which does not wait for who is late, until ctx ends.
func Ticks(ctx context.Context, every time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		ticker := time.NewTicker(every)
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

// ReviewFailed is the Cache-Status of a list that listproxy forwarded because kube-apiserver could
// not be asked what its caller may: the review had no answer in time, or its connection was given
// up. That is of the moment, and not remembered.
const ReviewFailed = "listproxy; fwd=bypass; detail=" + string(reason.ReviewFailed)

// UnknownCaller is the Cache-Status of a list that listproxy forwarded because kube-apiserver had
// not yet accepted its caller's token there. The answer to that list tells listproxy.
const UnknownCaller = "listproxy; fwd=bypass; detail=" + string(reason.UnknownCaller)

// Reviewed puts a question to listproxy, and puts it again while the answer is a [ReviewFailed] or
// an [UnknownCaller], which say nothing of what is in memory. put returns the Cache-Status, or a
// text that has it. Every other answer is the last one, and so is the first one after patience or
// at the end of ctx, whatever it says.
func Reviewed(ctx context.Context, patience time.Duration, put func() (said string)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		said := put()
		if !strings.Contains(said, ReviewFailed) && !strings.Contains(said, UnknownCaller) || !clock.Sleep(ctx, every) {
			return
		}
	}
}

package poll_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

func TestTry(t *testing.T) {
	notYet := errors.New("not yet")
	wrong := fmt.Errorf("seen: %w", poll.Wrong("what must not be"))
	for name, tt := range map[string]struct {
		look func(ctx context.Context, n int) error // n counts from 0
		end  time.Duration                          // of ctx
		// wants are in the error; none: there is none.
		wants  []error
		looks  int
		waited time.Duration
	}{
		"at once": {
			look:  func(context.Context, int) error { return nil },
			end:   time.Hour,
			looks: 1,
		},
		"in time": {
			look: func(_ context.Context, n int) error {
				if n < 2 {
					return notYet
				}
				return nil
			},
			end: time.Hour, looks: 3, waited: 20 * time.Second,
		},
		"too late": {
			look: func(context.Context, int) error { return notYet },
			end:  time.Hour, wants: []error{notYet}, looks: 6, waited: 55 * time.Second,
		},
		"never good": {
			look: func(_ context.Context, n int) error {
				if n < 1 {
					return notYet
				}
				return wrong
			},
			end: time.Hour, wants: []error{wrong, poll.Wrong("what must not be")}, looks: 2, waited: 10 * time.Second,
		},
		"given up": {
			look: func(context.Context, int) error { return notYet },
			end:  15 * time.Second, wants: []error{notYet}, looks: 2, waited: 15 * time.Second,
		},
		"the last look cut short": {
			look: func(ctx context.Context, n int) error {
				if n == 0 {
					return notYet
				}
				<-ctx.Done()
				return ctx.Err()
			},
			end: 15 * time.Second, wants: []error{notYet}, looks: 2, waited: 15 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.end)
				defer cancel()
				begun, looks := time.Now(), 0
				err := poll.Try(ctx, 55*time.Second, 10*time.Second, "anything", func() error {
					looks++
					return tt.look(ctx, looks-1)
				})
				if (err != nil) != (len(tt.wants) > 0) {
					t.Errorf("error: %v", err)
				}
				for _, want := range tt.wants {
					if !errors.Is(err, want) {
						t.Errorf("error: %v, without %v", err, want)
					}
				}
				if waited := time.Since(begun); looks != tt.looks || waited != tt.waited {
					t.Errorf("%d looks in %v, want %d in %v", looks, waited, tt.looks, tt.waited)
				}
			})
		})
	}
}

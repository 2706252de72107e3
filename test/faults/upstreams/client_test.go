package upstreams

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// patience ends a wait for what must come; nothing passes because of it.
	patience = 3 * time.Minute
	// requestTimeout is longer than any failure here should take to be noticed.
	requestTimeout = time.Minute
	pollEvery      = 20 * time.Millisecond
)

// retry is [poll.Try] with the patience of these tests.
func retry(ctx context.Context, what string, look func() error) error {
	return poll.Try(ctx, patience, pollEvery, what, look)
}

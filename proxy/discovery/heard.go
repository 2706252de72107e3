package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// streamSilence is how long a silent stream still counts as alive. kube-apiserver sends a bookmark
	// every minute if nothing changes; after a minute and a half the stream is late, or cut off.
	streamSilence = 90 * time.Second
	// silenceLook is the time between two looks at whether a stream has been silent for longer.
	silenceLook = 2 * time.Second
)

// heard records when a follower last got something: a list, an event or a bookmark that its store
// has taken. That a stream was opened, and stays open, proves nothing: the header may have come,
// while the network delays the rest for any time. The zero value has heard nothing. It is safe for
// concurrent use.
type heard struct {
	mu sync.Mutex
	at time.Time
}

// note records that something has come now.
func (h *heard) note() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = time.Now()
}

// within says whether something has come within the given time, by both clocks: after a machine was
// suspended its connections may be dead, so that changes since then have not come.
func (h *heard) within(age time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Age(h.at, time.Now()) <= age
}

// untilSilent returns a context that ends with ctx, or when nothing has come for streamSilence,
// counted from now on.
func (h *heard) untilSilent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	go func() {
		look := time.NewTicker(silenceLook)
		defer look.Stop()
		for h.within(streamSilence) || clock.Age(began, time.Now()) <= streamSilence {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}

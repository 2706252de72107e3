package limits

import (
	"context"
	"crypto/sha256"
	"time"
)

// Limits has the bounds of the process. It is safe for concurrent use.
type Limits struct {
	Requests, LongRunning *Limiter
	bytes                 *Limiter
}

// Flow identifies requests that together may use one share of the bounds: all requests of a user, or those of all unknown
// callers with one address.
type Flow [sha256.Size]byte

// Config configures Limits. A bound of 0 is no bound.
type Config struct {
	// Requests bounds the number of short requests at a time. Requests that wait for the upstream count, but not those
	// that wait for memory ([Grant.Pause]).
	Requests int
	// LongRunning bounds the number of watches, logs, execs and the like at a time (kubehttp.Request.LongRunning).
	// Beyond the bound, such requests are refused without waiting.
	LongRunning int
	// Bytes bounds the bytes of large answers from memory that are being written, before compression, together with the
	// bytes of large request bodies that are kept. Large means more than a 1024th of Bytes.
	Bytes int64
	// Wait bounds the time for which a short request, or a large answer, waits for its turn.
	Wait time.Duration
}

const (
	// waitingPerRequest is the number of requests that may wait (for their turn or for memory) for each request that may
	// be in flight. With the default of --max-requests-inflight, that is enough for 2,000 pods of one account.
	waitingPerRequest = 16
	// waitingAnswers bounds the large answers that wait to be written.
	waitingAnswers = 4096
	// smallPart divides Config.Bytes: an answer or body of up to the quotient is not counted.
	smallPart = 1024
)

// New returns Limits with nothing in flight. No bound may be negative.
func New(cfg Config) *Limits {
	return &Limits{
		Requests:    NewLimiter(LimiterConfig{Capacity: int64(cfg.Requests), MaxWaiting: cfg.Requests * waitingPerRequest, MaxWait: cfg.Wait}),
		LongRunning: NewLimiter(LimiterConfig{Capacity: int64(cfg.LongRunning)}),
		bytes:       NewLimiter(LimiterConfig{Capacity: cfg.Bytes, MaxWaiting: waitingAnswers, MaxWait: cfg.Wait}),
	}
}

// Answer waits until an answer of size bytes may be written. Small answers do not wait.
func (l *Limits) Answer(ctx context.Context, flow Flow, size int) (Grant, error) {
	if l.isSmall(int64(size)) {
		return Grant{}, nil
	}
	return l.bytes.Acquire(ctx, flow, int64(size))
}

// Body returns a grant to keep a request's body of size bytes until the request is answered. It returns false if there is
// no room.
func (l *Limits) Body(flow Flow, size int64) (Grant, bool) {
	if l.isSmall(size) {
		return Grant{}, true
	}
	return l.bytes.TryAcquire(flow, size)
}

func (l *Limits) isSmall(size int64) bool { return size <= l.bytes.config.Capacity/smallPart }

// Stats returns the state of each bound by its name in metrics.
func (l *Limits) Stats() map[string]Stats {
	return map[string]Stats{"short": l.Requests.Stats(), "long-running": l.LongRunning.Stats(), "bytes": l.bytes.Stats()}
}

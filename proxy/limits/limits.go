package limits

import (
	"context"
	"crypto/sha256"
	"time"
)

// Flow is whose requests share one part of a bound: those of a user, or of callers with the same
// address who are not known yet.
type Flow [sha256.Size]byte

// Config bounds what is in flight; 0 is no bound.
type Config struct {
	// Requests bounds the short requests at a time, those that wait for the upstream included; who waits for memory
	// is paused ([Grant.Pause]).
	Requests int
	// LongRunning bounds watches, logs, execs and the like (kubehttp.Request.LongRunning). Nobody waits for
	// one of them to end.
	LongRunning int
	// Bytes bounds the large answers that are being written from memory, before compression, and the large
	// bodies of requests that are kept: those of more than a thousandth of it.
	Bytes int64
	// Wait is the time for which a short request, or a large answer, waits for its turn.
	Wait time.Duration
}

const (
	// waitingPerRequest is the number of requests that may wait, for their turn or for memory, for each that may be in
	// flight. By default it is enough for 2,000 pods of one account.
	waitingPerRequest = 16
	// waitingAnswers bounds the large answers that wait to be written.
	waitingAnswers = 4096
	// smallPart is the part of all bytes up to which an answer or body is not counted.
	smallPart = 1024
)

// Limits are the bounds of a listproxy. They are safe for concurrent use.
type Limits struct {
	Requests, LongRunning *Limiter
	bytes                 *Limiter
}

// New returns Limits with nothing in flight. No bound may be negative.
func New(cfg Config) *Limits {
	return &Limits{
		Requests:    NewLimiter(LimiterConfig{Capacity: int64(cfg.Requests), MaxWaiting: cfg.Requests * waitingPerRequest, MaxWait: cfg.Wait}),
		LongRunning: NewLimiter(LimiterConfig{Capacity: int64(cfg.LongRunning)}),
		bytes:       NewLimiter(LimiterConfig{Capacity: cfg.Bytes, MaxWaiting: waitingAnswers, MaxWait: cfg.Wait}),
	}
}

// Answer waits until an answer of so many bytes may be written. Small answers need not wait.
func (l *Limits) Answer(ctx context.Context, of Flow, size int) (Grant, error) {
	if l.small(int64(size)) {
		return Grant{}, nil
	}
	return l.bytes.Acquire(ctx, of, int64(size))
}

// Body reports whether the body of a request, of so many bytes, may be kept until it is answered.
func (l *Limits) Body(of Flow, size int64) (Grant, bool) {
	if l.small(size) {
		return Grant{}, true
	}
	return l.bytes.TryAcquire(of, size)
}

func (l *Limits) small(size int64) bool { return size <= l.bytes.config.Capacity/smallPart }

// Stats returns the state of each bound, by its name in metrics.
func (l *Limits) Stats() map[string]Stats {
	return map[string]Stats{"short": l.Requests.Stats(), "long-running": l.LongRunning.Stats(), "bytes": l.bytes.Stats()}
}

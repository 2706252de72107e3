package limits

import (
	"context"
	"crypto/sha256"
	"time"
)

// Limits has the bounds that all requests of the process share, one [Limiter] each. It is safe for concurrent use.
type Limits struct {
	// Short bounds short requests.
	Short *Limiter
	// LongRunning bounds watches and other long-running requests.
	LongRunning *Limiter

	bytes *Limiter // bounds the bytes of large answers and request bodies
	// smallSize is the size in bytes up to which an answer or a body needs no grant.
	smallSize int64
}

// Flow identifies requests that share one part of the bounds: all requests of one user, or all requests of unknown callers at
// one address.
type Flow [sha256.Size]byte

// Config configures Limits. A bound of 0 is no bound.
type Config struct {
	// Short bounds the number of short requests at a time. A request counts while it waits for the upstream, but not while it
	// waits for memory ([Grant.Pause]).
	Short int
	// LongRunning bounds the number of watches, logs, execs and the like at a time (kubehttp.Request.LongRunning). Beyond the
	// bound, such requests are refused at once.
	LongRunning int
	// Bytes bounds the bytes of answers from memory that are being written, before compression, and of request bodies that
	// are kept. Answers and bodies of up to Bytes / smallDivisor are free.
	Bytes int64
	// MaxWait bounds the time for which a short request, or a large answer, waits for its turn.
	MaxWait time.Duration
}

const (
	// maxWaitingPerRequest is the number of requests that may wait (for their turn or for memory) for each short request that
	// may be in flight. With the default of --max-requests-inflight, 1000 * 16 = 16,000 requests may wait. An eighth of them
	// may be of one account (flowsToFillQueue): 2,000, enough for the pods of a DaemonSet on as many nodes.
	maxWaitingPerRequest = 16
	// maxWaitingAnswers is the number of large answers that may wait to be written.
	maxWaitingAnswers = 4096
	// smallDivisor divides Config.Bytes, to give Limits.smallSize. If Bytes is 1 GiB, an answer of up to 1 MiB is small.
	smallDivisor = 1024
)

// The names of the limiters in metrics. All but KindBytes count requests.
const (
	kindShort       = "short"
	kindLongRunning = "long-running"
	// KindBytes is the name of the limiter that counts bytes.
	KindBytes = "bytes"
)

// New returns Limits with nothing in flight. No bound may be negative.
func New(cfg Config) *Limits {
	short := LimiterConfig{Capacity: int64(cfg.Short), MaxWaiting: cfg.Short * maxWaitingPerRequest, MaxWait: cfg.MaxWait}
	longRunning := LimiterConfig{Capacity: int64(cfg.LongRunning)} // nothing waits
	bytes := NewLimiter(LimiterConfig{Capacity: cfg.Bytes, MaxWaiting: maxWaitingAnswers, MaxWait: cfg.MaxWait})
	smallSize := bytes.config.Capacity / smallDivisor // without a bound (Bytes is 0), every answer is small
	return &Limits{Short: NewLimiter(short), LongRunning: NewLimiter(longRunning), bytes: bytes, smallSize: smallSize}
}

// AcquireAnswer waits until an answer of size bytes may be written. A small answer does not wait. The errors are those of
// [Limiter.Acquire].
func (l *Limits) AcquireAnswer(ctx context.Context, flow Flow, size int) (Grant, error) {
	if int64(size) <= l.smallSize {
		return Grant{}, nil
	}
	return l.bytes.Acquire(ctx, flow, int64(size))
}

// TryAcquireBody returns a grant to keep a request's body of size bytes until the request is answered. A small body is always
// granted. For a large one, TryAcquireBody returns false if there is no room.
func (l *Limits) TryAcquireBody(flow Flow, size int64) (Grant, bool) {
	if size <= l.smallSize {
		return Grant{}, true
	}
	return l.bytes.TryAcquire(flow, size)
}

// Stats returns the state of each limiter by its name in metrics.
func (l *Limits) Stats() map[string]Stats {
	return map[string]Stats{kindShort: l.Short.Stats(), kindLongRunning: l.LongRunning.Stats(), KindBytes: l.bytes.Stats()}
}

package limits

import (
	"context"
	"crypto/sha256"
	"time"
)

// Limits has the limiters that all requests of the process share. It is safe for concurrent use.
type Limits struct {
	// Short bounds short requests.
	Short *Limiter
	// LongRunning bounds watches and other long-running requests.
	LongRunning *Limiter

	// bytes bounds the bytes of answers and request bodies that are not small.
	bytes *Limiter
}

// Flow identifies requests that share one part of the bounds: all requests of one user, or all requests of unknown callers at
// one address.
type Flow [sha256.Size]byte

// Config configures Limits. A bound of 0 is no bound.
type Config struct {
	// Short bounds the number of short requests at a time. Requests that wait for the upstream count, but not those that
	// wait for memory ([Grant.Pause]).
	Short int
	// LongRunning bounds the number of watches, logs, execs and the like at a time (kubehttp.Request.LongRunning). Beyond the
	// bound, such requests are refused at once.
	LongRunning int
	// Bytes bounds the bytes of answers from memory that are being written, before compression, and of request bodies that
	// are kept. Small ones, of up to Bytes / smallDivisor, are not counted.
	Bytes int64
	// MaxWait bounds the time for which a short request, or an answer that is not small, waits for its turn.
	MaxWait time.Duration
}

const (
	// placesPerRequest is the number of requests that may wait (for their turn or for memory) for each request that may be
	// in flight. With the default of --max-requests-inflight, that makes 1000 * 16 = 16,000 places. One account can have an
	// eighth of them (flowsToFillQueue): 2,000, enough for the pods of a DaemonSet on as many nodes.
	placesPerRequest = 16
	// answerPlaces is the number of answers that may wait to be written.
	answerPlaces = 4096
	// smallDivisor divides Config.Bytes, to give the size of the largest small answer or body.
	smallDivisor = 1024
)

// KindBytes is the name in metrics of the limiter that counts bytes. The other limiters count requests.
const KindBytes = "bytes"

// New returns Limits with nothing in flight. No bound may be negative.
func New(cfg Config) *Limits {
	return &Limits{
		Short:       NewLimiter(LimiterConfig{Capacity: int64(cfg.Short), MaxWaiting: cfg.Short * placesPerRequest, MaxWait: cfg.MaxWait}),
		LongRunning: NewLimiter(LimiterConfig{Capacity: int64(cfg.LongRunning)}),
		bytes:       NewLimiter(LimiterConfig{Capacity: cfg.Bytes, MaxWaiting: answerPlaces, MaxWait: cfg.MaxWait}),
	}
}

// isSmall reports whether an answer or a body is not counted. Capacity is Config.Bytes, or very large if that is 0.
func (l *Limits) isSmall(size int64) bool { return size <= l.bytes.config.Capacity/smallDivisor }

// AcquireAnswer waits until an answer of size bytes may be written. Small answers do not wait. Its errors are those of
// [Limiter.Acquire].
func (l *Limits) AcquireAnswer(ctx context.Context, flow Flow, size int) (Grant, error) {
	if l.isSmall(int64(size)) {
		return Grant{}, nil
	}
	return l.bytes.Acquire(ctx, flow, int64(size))
}

// TryAcquireBody returns a grant to keep a request's body of size bytes until the request is answered. Small bodies need no
// room. If there is no room, TryAcquireBody returns false.
func (l *Limits) TryAcquireBody(flow Flow, size int64) (Grant, bool) {
	if l.isSmall(size) {
		return Grant{}, true
	}
	return l.bytes.TryAcquire(flow, size)
}

// Stats returns the state of each limiter by its name in metrics.
func (l *Limits) Stats() map[string]Stats {
	return map[string]Stats{"short": l.Short.Stats(), "long-running": l.LongRunning.Stats(), KindBytes: l.bytes.Stats()}
}

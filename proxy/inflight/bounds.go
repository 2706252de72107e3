package inflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Config bounds what is in flight. A bound of 0 is none.
type Config struct {
	// Requests bounds the short requests at a time, those that wait for the upstream included.
	Requests int
	// LongRunning bounds watches, logs, execs and the like (kubehttp.Request.LongRunning) of callers
	// whom kube-apiserver has accepted. Those of others have a bound of their own, an eighth of this.
	LongRunning int
	// Bytes bounds the bodies that are being written from memory, before compression.
	Bytes int64
	// Wait is how long a short request, or the body of an answer, waits for its turn.
	Wait time.Duration
}

const (
	// waitingPerPlace is how many requests may wait for each that may be in flight.
	waitingPerPlace = 4
	// callersPart: of all requests that may wait, one caller may have this part, an eighth.
	callersPart = 8
	// waitingBodies bounds the answers that wait to be written.
	waitingBodies = 4096
	// unacceptedPart: callers whom kube-apiserver has not accepted may together have so many
	// long-running requests beside those of the others: this part of their number. They are accepted
	// with its first answer; anonymous callers never are.
	unacceptedPart = 8
	// spillsAtOnce and spillsPerSecond bound for how many answers kube-apiserver is asked because
	// there is no room for their bytes here. A whole herd of those who start anew would be too many
	// for it as well.
	spillsAtOnce    = 20
	spillsPerSecond = 2
	// takesAtOnce and takesPerSecond bound how many long-running requests are ended because others need
	// their places: their clients open them again.
	takesAtOnce    = 100
	takesPerSecond = 50
)

// Bounds bounds what is in flight, and shares it fairly between callers. It is safe for
// concurrent use.
type Bounds struct {
	short      *Limiter[ShareKey]
	long       *Limiter[ShareKey] // of callers whom kube-apiserver has accepted
	unaccepted *Limiter[ShareKey] // of others
	bodies     *Limiter[ShareKey]
	spills     *rate.Limiter

	mu sync.Mutex
	// places has what ends each request of long.
	places *holdings[func()]
	// taking counts the requests that wait for a place that they have taken.
	taking map[ShareKey]int
	takes  *rate.Limiter
	taken  uint64 // counts the places that were
}

// New returns Bounds with nothing in flight.
func New(cfg Config) (*Bounds, error) {
	b := &Bounds{
		spills: rate.NewLimiter(spillsPerSecond, spillsAtOnce),
		places: newHoldings[func()](), taking: map[ShareKey]int{}, takes: rate.NewLimiter(takesPerSecond, takesAtOnce),
	}
	unaccepted := (cfg.LongRunning + unacceptedPart - 1) / unacceptedPart
	for _, l := range []struct {
		limiter **Limiter[ShareKey]
		config  LimiterConfig
	}{
		{&b.short, Queueing(int64(cfg.Requests), cfg.Requests*waitingPerPlace, cfg.Wait)},
		// Nobody knows when one of these ends, so nobody waits for it, except who has ended one.
		{&b.long, Queueing(int64(cfg.LongRunning), unaccepted, cfg.Wait)},
		// Callers do not stay unaccepted for long: they are accepted, or their requests end. They have
		// places of their own, so that they can be accepted while all others are in use.
		{&b.unaccepted, Queueing(int64(unaccepted), unaccepted, cfg.Wait)},
		{&b.bodies, Queueing(cfg.Bytes, waitingBodies, cfg.Wait)},
	} {
		limiter, err := NewLimiter[ShareKey](l.config)
		if err != nil {
			return nil, fmt.Errorf("the bounds of what is in flight: %w", err)
		}
		*l.limiter = limiter
	}
	return b, nil
}

// Queueing configures a limiter of the given capacity, of which one caller may hold half. At most
// waiting requests wait, each for at most wait.
func Queueing(capacity int64, waiting int, wait time.Duration) LimiterConfig {
	return LimiterConfig{
		Capacity: capacity, PerCaller: mostOfOne(capacity),
		MaxWaiting: waiting, MaxWaitingPerCaller: max(1, waiting/callersPart), MaxWait: wait,
	}
}

// mostOfOne is how much of a capacity one caller may hold: half of it, so that another who comes
// finds room, however slow the first one is.
func mostOfOne(capacity int64) int64 { return (capacity + 1) / 2 }

// Place is what a request that was let in holds. It must not be copied once Release may be called,
// nor be used by several goroutines at once.
type Place struct {
	own    Grant[ShareKey]
	bounds *Bounds
	end    func()        // ends the request; nil if it is short
	ends   *item[func()] // the same, in bounds.places; nil if the place is none of bounds.long
}

// Release gives the place back. Only the first call does anything.
func (p *Place) Release() {
	if p.ends != nil {
		p.bounds.mu.Lock()
		p.bounds.places.remove(p.ends)
		p.bounds.mu.Unlock()
	}
	p.own.Release()
}

// Admit lets a request in, when its turn comes. Accepted says whether the upstream knows the
// caller. The error is an [Overload], or ctx's. A long-running request has an end, which ends it
// soon: it may be called once, if a caller with fewer such requests needs the place. A short one has
// none (nil).
func (b *Bounds) Admit(ctx context.Context, caller ShareKey, accepted bool, end func()) (p Place, err error) {
	p.bounds, p.end = b, end
	if end == nil {
		p.own, err = b.short.Acquire(ctx, caller, 1)
		return p, err
	}
	if !accepted {
		p.own, err = b.unaccepted.Acquire(ctx, caller, 1)
		return p, err
	}
	taken := false
	p.own, err = b.long.acquireIf(ctx, caller, 1, b.long.config.MaxWait, func() Overload {
		if !b.long.mayHoldMore(caller, 1) {
			return OverloadCallerQueueFull
		}
		if taken = b.take(caller); !taken {
			return OverloadQueueFull
		}
		return ""
	})
	b.hold(&p, caller, taken, err == nil)
	return p, err
}

// hold notes that a caller holds a place of long, if it got one, and needs none any more that it has
// taken.
func (b *Bounds) hold(p *Place, caller ShareKey, taken, got bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if taken {
		addTo(b.taking, caller, -1)
	}
	if got {
		p.ends = b.places.add(caller, p.end)
	}
}

// take ends a long-running request for one of a caller: the newest of the caller who has the most, if
// that has at least two more. hold must be called then.
func (b *Bounds) take(caller ShareKey) bool {
	b.mu.Lock()
	taken := b.places.spareFor(b.places.count(caller) + b.taking[caller])
	if taken == nil || !b.takes.Allow() { // who can take nothing uses up none of what others may take
		b.mu.Unlock()
		return false
	}
	b.places.remove(taken)
	b.taken++
	addTo(b.taking, caller, 1)
	b.mu.Unlock()
	taken.value()
	return true
}

// Accept gives a long-running request a place among those of accepted callers, now that the upstream
// has accepted its caller. If all are in use, another request is ended to make room. If that is not
// possible either, this request ends: had its caller been known, it would have been refused.
// Otherwise one caller could hold its own half and, with a new token for each request, all places of
// callers who are not accepted.
func (b *Bounds) Accept(p *Place, caller ShareKey) {
	if p.own.limiter != b.unaccepted {
		return
	}
	own, ok := b.long.tryAcquire(caller, 1)
	taken := !ok && b.long.config.MaxWait > 0 && b.long.mayHoldMore(caller, 1) && b.take(caller)
	switch {
	case taken:
		own = b.long.exceed(caller, 1) // until the other one has ended
	case !ok:
		p.end()
		return
	}
	b.hold(p, caller, taken, true)
	p.own.Release()
	p.own = own
}

// errOwnBound: the body had to wait because its caller already holds as much as one caller may hold.
var errOwnBound = fmt.Errorf("the caller's own answers take as much room as one caller may have: %w", OverloadTimeOut)

// ErrNotYet means that a body has waited for atMost (see [Bounds.AdmitBody]), and may wait again.
var ErrNotYet = errors.New("there is no room yet")

// AdmitBody waits until a body of this many bytes may be written. begun is when the body began to
// wait; it is refused when [Bounds.BodyWait] has passed since then. One call waits at most for atMost.
// If that time is over first, the error is ErrNotYet, and no refusal is counted.
//
// There is no deadlock: the body's request has been admitted before, and nothing is asked of the
// upstream while a body's grant is held.
func (b *Bounds) AdmitBody(ctx context.Context, caller ShareKey, bytes int, begun time.Time, atMost time.Duration) (
	Grant[ShareKey], error,
) {
	limited, left := ctx, max(0, b.BodyWait()-time.Since(begun))
	if atMost < left {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, atMost)
		defer cancel()
	}
	room, err := b.bodies.acquireIf(limited, caller, int64(bytes), left, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		err = ErrNotYet
	case errors.Is(err, OverloadTimeOut) && !b.bodies.mayHoldMore(caller, int64(bytes)):
		err = errOwnBound
	}
	return room, err
}

// BodyWait is how long a body waits for its turn.
func (b *Bounds) BodyWait() time.Duration { return b.bodies.config.MaxWait }

// Spill says whether a request that [Bounds.AdmitBody] has refused with this error may be forwarded
// instead: it has waited, not only for others of its caller, and few others are forwarded so.
func (b *Bounds) Spill(err error) bool {
	return errors.Is(err, OverloadTimeOut) && !errors.Is(err, errOwnBound) && b.spills.Allow()
}

// TryAdmitBody is AdmitBody for who need not wait.
func (b *Bounds) TryAdmitBody(caller ShareKey, bytes int) (Grant[ShareKey], bool) {
	return b.bodies.tryAcquire(caller, int64(bytes))
}

package inflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Config bounds what is in flight. A bound of 0 is none.
type Config struct {
	// Requests bounds the short requests at a time, those that wait for the upstream included.
	Requests int
	// LongRunning bounds watches, logs, execs and the like (kubehttp.Request.LongRunning).
	LongRunning int
	// Bytes bounds the bodies that are being written from memory, before compression.
	Bytes int64
	// Wait is how long a short request, or the body of an answer, waits for its turn.
	Wait time.Duration
}

const (
	// waitingPerPlace is how many requests may wait for each that may be in flight.
	waitingPerPlace = 4
	// callersQueue is the part of all that wait which one caller's may be.
	callersQueue = 8
	// waitingBodies bounds the answers that wait to be written.
	waitingBodies = 4096
	// unacceptedPart: callers whom kube-apiserver has not accepted may together have this part of
	// the long-running requests. They are accepted with its first answer; anonymous callers never
	// are.
	unacceptedPart = 8
	// spillsAtOnce and spillsPerSecond bound for how many answers kube-apiserver is asked because
	// there is no room for their bytes here. A whole herd of those who start anew would be too many
	// for it as well.
	spillsAtOnce    = 20
	spillsPerSecond = 2
)

// Bounds bounds what is in flight, and shares it fairly between callers. It is safe for
// concurrent use.
type Bounds struct {
	short, long *Limiter[ShareKey]
	unaccepted  *Limiter[ShareKey] // those who hold one of long as well
	bodies      *Limiter[ShareKey]
	spills      *rate.Limiter
}

// New returns Bounds with nothing in flight.
func New(cfg Config) (*Bounds, error) {
	a := &Bounds{spills: rate.NewLimiter(spillsPerSecond, spillsAtOnce)}
	unaccepted := (cfg.LongRunning + unacceptedPart - 1) / unacceptedPart
	for _, l := range []struct {
		limiter **Limiter[ShareKey]
		config  LimiterConfig
	}{
		{&a.short, Queueing(int64(cfg.Requests), cfg.Requests*waitingPerPlace, cfg.Wait)},
		// Nobody knows when one of these ends, so nobody waits for it.
		{&a.long, LimiterConfig{Capacity: int64(cfg.LongRunning), PerCaller: mostOfOne(int64(cfg.LongRunning))}},
		// But callers do not stay unaccepted for long: they are accepted, or their requests end.
		{&a.unaccepted, Queueing(int64(unaccepted), unaccepted, cfg.Wait)},
		{&a.bodies, Queueing(cfg.Bytes, waitingBodies, cfg.Wait)},
	} {
		limiter, err := NewLimiter[ShareKey](l.config)
		if err != nil {
			return nil, fmt.Errorf("the bounds of what is in flight: %w", err)
		}
		*l.limiter = limiter
	}
	return a, nil
}

// Queueing configures a limiter of so much capacity in which so many may wait, for so long.
func Queueing(capacity int64, waiting int, wait time.Duration) LimiterConfig {
	return LimiterConfig{
		Capacity: capacity, PerCaller: mostOfOne(capacity),
		MaxWaiting: waiting, MaxWaitingPerCaller: max(1, waiting/callersQueue), MaxWait: wait,
	}
}

// mostOfOne is how much of a capacity one caller may hold: half of it, so that another who comes
// finds room, however slow the first one is.
func mostOfOne(capacity int64) int64 { return (capacity + 1) / 2 }

// Place is what a request that was let in holds. It must not be copied once Release may be called,
// nor be used by several goroutines at once.
type Place struct{ own, unaccepted Grant[ShareKey] }

// Release gives the place back. Only the first call does anything.
func (p *Place) Release() {
	p.own.Release()
	p.unaccepted.Release()
}

// Admit lets a request in, when its turn comes. Accepted says whether the upstream knows the
// caller. The error is an [Overload], or ctx's.
func (a *Bounds) Admit(ctx context.Context, caller ShareKey, accepted, long bool) (p Place, err error) {
	if !long {
		p.own, err = a.short.Acquire(ctx, caller, 1)
		return p, err
	}
	if !accepted {
		if p.unaccepted, err = a.unaccepted.Acquire(ctx, caller, 1); err != nil {
			return p, err
		}
	}
	if p.own, err = a.long.Acquire(ctx, caller, 1); err != nil {
		p.Release()
	}
	return p, err
}

// Accept makes the place of a long-running request that of a caller, now that the upstream has
// accepted it. If the caller has as many already as it may have, the place stays that of its
// address, and one of that address's eighth: with a new token for each request one caller could
// else have its own half and its address's.
func (a *Bounds) Accept(p *Place, caller ShareKey) {
	if p.unaccepted.limiter == nil {
		return
	}
	if own, ok := a.long.tryAcquire(caller, 1); ok {
		p.Release()
		p.own = own
	}
}

// AdmitBody lets a body of so many bytes be written, when its turn comes, which it waits for at most
// for atMost and no longer than [Bounds.BodyWait]. The request it is for has been admitted, and the
// upstream is asked nothing while a body's grant is held: so nobody waits for somebody who waits.
func (a *Bounds) AdmitBody(ctx context.Context, caller ShareKey, bytes int, atMost time.Duration) (Grant[ShareKey], error) {
	limited := ctx
	if atMost < a.BodyWait() {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, atMost)
		defer cancel()
	}
	room, err := a.bodies.Acquire(limited, caller, int64(bytes))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = OverloadTimeOut
	}
	return room, err
}

// BodyWait is how long a body waits for its turn.
func (a *Bounds) BodyWait() time.Duration { return a.bodies.config.MaxWait }

// Spill says whether a request that [Bounds.AdmitBody] has refused with this error may be forwarded
// instead: it has waited, and few others are forwarded so.
func (a *Bounds) Spill(err error) bool { return errors.Is(err, OverloadTimeOut) && a.spills.Allow() }

// TryAdmitBody is AdmitBody for who need not wait.
func (a *Bounds) TryAdmitBody(caller ShareKey, bytes int) (Grant[ShareKey], bool) {
	return a.bodies.tryAcquire(caller, int64(bytes))
}

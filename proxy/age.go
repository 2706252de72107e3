package proxy

import "time"

// ageOf is how old at now something is that was learned at a time, for what must not be believed for too
// long: rights, who somebody is, who answers for what.
//
// The difference of two readings of [time.Now] is that of the monotonic clock, which stands still while the
// machine does (CLOCK_MONOTONIC, of a laptop that is suspended or a virtual machine that is paused): after
// an hour's pause what was learned before it would be as young as it was. The wall clock goes on. So the age
// is the larger difference of both: a wall clock that is set forward makes things old too early, which costs
// another question, and one that is set back changes nothing.
//
// It is not for pauses, nor for what has to be of some age before it counts: there the larger is the bolder.
func ageOf(at, now time.Time) time.Duration {
	return age(now.Sub(at), now.Round(0).Sub(at.Round(0))) // Round(0) strips the monotonic reading
}

// age is [ageOf] by the differences of the two clocks.
func age(monotonic, wall time.Duration) time.Duration { return max(monotonic, wall) }

// term is for how long something counts: from when it was asked for.
type term struct {
	from time.Time
	ttl  time.Duration
}

// left is how much of it is left; zero or less: nothing.
func (t term) left(now time.Time) time.Duration { return t.ttl - ageOf(t.from, now) }

// holds says whether it has not ended.
func (t term) holds(now time.Time) bool { return t.left(now) > 0 }

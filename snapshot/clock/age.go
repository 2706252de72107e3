package clock

import "time"

// Age is how old at now something is that was learned at a time, for what must not be believed for
// too long: a state, rights, who somebody is, who answers for what.
//
// The difference of two readings of [time.Now] is that of the monotonic clock, which stands still
// while the machine does (CLOCK_MONOTONIC, of a laptop that is suspended or a virtual machine that
// is paused): after an hour's pause what was learned before it would be as young as it was. The
// wall clock goes on. So the age is the larger difference of both: a wall clock that is set forward
// makes things old too early, which costs another question, and one that is set back changes
// nothing.
//
// It is not for pauses, nor for what has to be of some age before it counts: there the larger is
// the bolder.
func Age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0))) // Round(0) strips the monotonic reading
}

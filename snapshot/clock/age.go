package clock

import "time"

// Age returns the age, at now, of something learned at the time at. It is for things that are valid
// only for a time: a state, rights, who somebody is, which server answers for a group.
//
// The difference of two readings of [time.Now] is that of the monotonic clock, which stands still
// while the machine does (CLOCK_MONOTONIC, of a laptop that is suspended or a virtual machine that
// is paused): after a pause of an hour, something learned before would seem as young as before the
// pause. The wall clock goes on. So the age is the larger of the two differences: a wall clock that
// is set forward makes things old too early, which costs another probe, and one that is set back
// changes nothing.
//
// Do not use it for pauses, nor for things that must reach some age before they count: for these,
// the larger age is not the safe one.
func Age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0))) // Round(0) strips the monotonic reading
}

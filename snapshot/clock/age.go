package clock

import "time"

// Age returns the age, at now, of something that was learned at the time at. It is for things that are valid only for a
// time: a state, a right, the identity of a user, the server that answers for a group.
//
// The age is the larger of two differences, by the monotonic clock and by the wall clock. The monotonic clock
// (CLOCK_MONOTONIC) stands still while a laptop is suspended or a virtual machine is paused, so by this clock alone, things
// would seem too young afterwards. A wall clock that is set forward makes things old too early, which costs another probe.
// One that is set back changes nothing.
//
// Do not use Age for pauses, or for things that must reach some age before they count: there the larger age is not the safe
// one.
func Age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0))) // Round(0) strips the monotonic reading
}

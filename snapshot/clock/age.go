package clock

import "time"

// Age returns the age, at now, of something that was learned at the time at. It is for things that are valid only for a
// time: a state, a right, the identity of a user, the server that answers for a group.
//
// The age is the larger of two differences, by the monotonic clock and by the wall clock:
//
//   - The monotonic clock (CLOCK_MONOTONIC) stands still while a laptop is suspended or a virtual machine is paused. By this
//     clock alone, things would seem too young afterwards.
//   - The wall clock may be set. If it is set forward, things are old too early, which costs another probe. If it is set back,
//     the monotonic clock decides.
//
// Do not use Age where a small age is the safe one: for pauses, or for things that must reach some age before they count.
func Age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0))) // Round(0) strips the monotonic reading
}

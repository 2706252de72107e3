package snapshot

import "time"

// age is how long ago at was. Where the two clocks of a process disagree it is what the one that went
// further says: the monotonic clock stands still while a machine is suspended, or a virtual one is
// paused, and the wall clock can be set back. One that is set forward makes what is young look old,
// which costs answers from memory and never truth.
func age(now, at time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0))) // Round strips the monotonic reading
}

package clock

import "time"

// Orderly is how long after the end of a watch the next one must have been answered for nothing to
// be in doubt. No storage is stopped, put back to another past and started again in less.
const Orderly = 10 * time.Second

// InDoubt reports whether whoever answers a watch now may have another past than whoever answered
// the list or the watch before it, which was over at that time: in order, at its own end.
func InDoubt(over, now time.Time) bool { return Age(over, now) > Orderly }

package proxytest

import (
	"time"
	"unsafe"
)

// EarlierByTheWallClock returns a time that is earlier than at by the wall clock, and the same by the monotonic clock, as if
// the machine had been suspended since. A negative shift is as if the wall clock had been set back. Package time has no
// function for this. The first field of a Time has the seconds of the wall clock above 30 bits of nanoseconds.
func EarlierByTheWallClock(at time.Time, shift time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(shift/time.Second) << 30 // #nosec G103 G115 -- the first field
	return at
}

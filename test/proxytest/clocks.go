package proxytest

import (
	"time"
	"unsafe"
)

// EarlierByTheWallClock returns at with an earlier wall clock and the same monotonic clock, as if the machine had been suspended
// since. With a negative shift, it is as if the wall clock had been set back. Package time has no function for this. The first
// field of a Time has the seconds of the wall clock above 30 bits of nanoseconds.
func EarlierByTheWallClock(at time.Time, shift time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(shift/time.Second) << 30 // #nosec G103 G115 -- the first field
	return at
}

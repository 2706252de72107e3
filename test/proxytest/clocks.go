package proxytest

import (
	"time"
	"unsafe"
)

// EarlierByTheWallClock returns a time whose wall clock is earlier, and whose monotonic clock is the same: as if the machine
// had been suspended since, or with a negative by, as if the wall clock had been set back. Package time has no function for
// this. The first field of a Time has the seconds of the wall clock above 30 bits of nanoseconds.
func EarlierByTheWallClock(at time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(by/time.Second) << 30 // #nosec G103 G115 -- the first field
	return at
}

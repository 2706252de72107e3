package proxytest

import (
	"time"
	"unsafe"
)

// EarlierByTheWallClock moves a reading of both clocks on the wall clock only, as if the machine had been suspended
// since, or (by less than nothing) the clock set back. Nothing in package time does: it holds the seconds of the
// wall clock above 30 bits of nanoseconds, beside the monotonic reading.
func EarlierByTheWallClock(at time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(by/time.Second) << 30 // #nosec G103 G115 -- the first field
	return at
}

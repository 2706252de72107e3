//go:build !linux

package bench

import (
	"errors"
	"time"
)

// cpuTime is measured on Linux only.
func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of another process is read from /proc: run this on Linux")
}

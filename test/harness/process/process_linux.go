package process

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time of a process so far, in user and kernel mode. It reads the kernel's CPU clock of the process, in
// nanoseconds, since /proc/PID/stat has ticks of 10 ms.
func CPU(pid int) (time.Duration, error) {
	const cpuClockSched = 2
	clock := int32(^pid<<3 | cpuClockSched) // as in the kernel's include/linux/posix-timers.h
	var at unix.Timespec
	if err := unix.ClockGettime(clock, &at); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// Memory returns the resident bytes of a process, now and at their peak (proc(5)).
func Memory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for name, bytes := range map[string]*int64{"VmRSS": &now, "VmHWM": &peak} {
		_, value, _ := strings.Cut(string(status), "\n"+name+":")
		if _, err := fmt.Sscanf(value, "%d kB", bytes); err != nil {
			return 0, 0, fmt.Errorf("%s of process %d: %w", name, pid, err)
		}
		*bytes <<= 10
	}
	return now, peak, nil
}

package process

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is how long a process has computed so far, in user and kernel mode, from the kernel's CPU
// clock of the process: in nanoseconds, where /proc/PID/stat has ticks of 10 ms. How the number of
// that clock is made is in the kernel's include/linux/posix-timers.h (CPUCLOCK_SCHED, 2).
func CPU(pid int) (time.Duration, error) {
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &at); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// Memory is how many bytes of a process are resident, and the most there ever were (proc(5)).
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

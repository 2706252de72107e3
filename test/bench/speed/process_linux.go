package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is how long a process has computed so far, in user and kernel mode, from the kernel's
// CPU clock of the process: in nanoseconds, where /proc/PID/stat has ticks of 10 ms. How the number
// of that clock is made is in the kernel's include/linux/posix-timers.h (CPUCLOCK_SCHED, 2).
func cpuTime(pid int) (time.Duration, error) {
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &at); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// memory is how many bytes of a process are resident, and the most there ever were.
func memory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) < 3 {
			continue
		}
		kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
		switch string(fields[0]) {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		default:
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("the memory of process %d: %w", pid, err)
		}
	}
	return now, peak, nil
}

// resetPeak makes memory's peak begin anew (proc(5), clear_refs).
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// machine is what the numbers were measured on.
func machineKernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
}

// machineModel is the CPU's name.
func machineModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range bytes.Lines(info) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "model name" {
			return string(bytes.TrimSpace(value))
		}
	}
	return "unknown"
}

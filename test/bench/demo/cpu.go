package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ticks is how many of its units of CPU time Linux shows processes a second (proc(5), USER_HZ).
const ticks = 100

// cpuTime is how long a process has computed so far: from /proc, or where there is none (macOS)
// from ps.
func cpuTime(ctx context.Context, pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		return cpuOfStat(string(stat))
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "time=", "-p", strconv.Itoa(pid)).Output() // #nosec G204 -- a number
	if err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return cpuOfPS(strings.TrimSpace(string(out)))
}

// cpuOfStat reads user and kernel time. The name of the program, in brackets, may hold anything.
func cpuOfStat(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("the CPU time of a process: %q", stat)
	}
	sum := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("the CPU time of a process: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// cpuOfPS reads [hours:]minutes:seconds[.hundredths].
func cpuOfPS(text string) (time.Duration, error) {
	var sum float64
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0, fmt.Errorf("the CPU time of a process: %w", err)
		}
		sum = 60*sum + n
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// Package process tells what another process takes: the CPU time that it has used, and its memory.
package process

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Used is how long each of some processes computes while something is done.
func Used(do func() error, pids ...int) ([]time.Duration, error) {
	used := make([]time.Duration, len(pids))
	for i, pid := range pids {
		before, err := CPU(pid)
		if err != nil {
			return nil, err
		}
		used[i] = -before
	}
	if err := do(); err != nil {
		return nil, err
	}
	for i, pid := range pids {
		after, err := CPU(pid)
		if err != nil {
			return nil, err
		}
		used[i] += after
	}
	return used, nil
}

// ofPS reads the CPU time that ps shows: [hours:]minutes:seconds[.hundredths].
func ofPS(text string) (time.Duration, error) {
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

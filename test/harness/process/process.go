// Package process measures the CPU time and the memory of another process.
package process

import "time"

// Used returns the CPU time that each process uses while do runs.
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

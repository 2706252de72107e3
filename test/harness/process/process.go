// Package process tells what another process takes: the CPU time that it has used, and its memory.
package process

import "time"

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

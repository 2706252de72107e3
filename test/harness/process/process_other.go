//go:build !linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

var errLinux = errors.New("the memory of another process is read on Linux only")

// CPU returns the CPU time of a process so far.
func CPU(pid int) (time.Duration, error) {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "time=", "-p", strconv.Itoa(pid)).Output() // #nosec G204 -- a number
	if err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return parsePS(strings.TrimSpace(string(out)))
}

// parsePS reads the CPU time that ps shows: [hours:]minutes:seconds[.hundredths].
func parsePS(text string) (time.Duration, error) {
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

// Memory returns an error: it is implemented for Linux only.
func Memory(int) (now, peak int64, err error) { return 0, 0, errLinux }

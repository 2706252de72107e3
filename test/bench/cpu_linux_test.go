package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/PID/stat (USER_HZ, 100 on all that Go runs on).
const tick = time.Second / 100

// cpuTime is how long a process has computed so far, in user and kernel mode: fields 14 and 15 of
// /proc/PID/stat, see proc(5).
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field, the name, may hold anything; after its last parenthesis comes the third.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	total := time.Duration(0)
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
		}
		total += time.Duration(ticks) * tick
	}
	return total, nil
}

package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// pauseWait bounds the wait for the threads of a paused process to stop.
const pauseWait = time.Minute

// pause stops the execution of a process and returns when all of it stands still: the signal
// alone returns before its threads have noticed, and one of them may still answer. Where there
// is no /proc to see that, it returns after the signal.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	timeout := time.NewTimer(pauseWait)
	defer timeout.Stop()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !standsStill(p.cmd.Process.Pid) {
		select {
		case <-p.done:
			return fmt.Errorf("pause %s: %w", p.name, errNotRunning)
		case <-timeout.C:
			_ = p.signal(syscall.SIGCONT) // whoever shares it goes on
			return errors.New("pause " + p.name + ": some of its threads did not stop")
		case <-ticker.C:
		}
	}
	return nil
}

// standsStill says whether no thread of a process executes.
func standsStill(pid int) bool {
	threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	for _, name := range threads {
		stat, err := os.ReadFile(name) // #nosec G304 -- below /proc
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the command's name, which stands in parentheses.
		if i := bytes.LastIndex(stat, []byte(") ")); i >= 0 && !bytes.HasPrefix(stat[i+2:], []byte("T")) {
			return false
		}
	}
	return true
}

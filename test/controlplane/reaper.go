package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// runningFile exists in the control plane's directory as long as processes may start. A starting process first writes its
// pid, and then checks for the file. The reaper first removes the file, and then reads the pids. So it finds a process that
// is just starting, or that process does not start.
const runningFile = "running"

// reaperScript waits for the end of its standard input, kills the processes whose pids are in the directory $1, and removes
// the directory. Dying processes may still write there, so it tries again for ten seconds.
const reaperScript = `
trap '' HUP INT TERM
while read -r _; do :; done
rm -f "$1/` + runningFile + `"
tries=0
while [ -e "$1" ] && [ "$tries" -lt 100 ]; do
	for f in "$1"/*.pid; do
		if [ -e "$f" ]; then kill -9 "$(cat "$f")"; fi
	done
	rm -rf "$1"
	if [ -e "$1" ]; then sleep 0.1; fi
	tries=$((tries + 1))
done 2>/dev/null
`

// A reaper cleans up when this process ends, however it ends: the kernel then closes the writing end
// of the pipe that the reaper reads. No child inherits that end (Go opens pipes close-on-exec).
type reaper struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// startReaper starts the reaper of dir, which must exist.
func startReaper(dir string) (*reaper, error) {
	if err := os.WriteFile(filepath.Join(dir, runningFile), nil, 0o600); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", dir, err)
	}
	cmd := exec.Command("/bin/sh", "-c", reaperScript, "reaper", dir) // #nosec G204 -- a fixed script
	cmd.Dir = "/"
	// A session of its own: signals to the process group of the terminal or the test must not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	return &reaper{cmd: cmd, pipe: pipe}, nil
}

// reap starts the clean-up and waits for its end.
func (r *reaper) reap() {
	_ = r.pipe.Close()
	_ = r.cmd.Wait()
}

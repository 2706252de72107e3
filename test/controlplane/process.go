package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// launchScript writes its own pid to the file $1, makes sure that the reaper has not begun to clean up (the file $2 still
// exists), and becomes the program, the remaining arguments. See runningFile.
const launchScript = `pid=$1; running=$2; shift 2
echo $$ >"$pid" && [ -e "$running" ] && exec "$@"`

// pollEvery is the time between two checks whether something is ready.
const pollEvery = 50 * time.Millisecond

// A process is a child with its pid in DIR/NAME.pid and its output in DIR/NAME.log.
type process struct {
	name    string
	pidFile string
	logFile string
	started time.Time
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process is gone
	exit    error         // of Wait; readable once done is closed
}

// startProcess starts a program. It appends to an existing log file.
func startProcess(dir, name, binary string, args []string) (*process, error) {
	p := &process{
		name:    name,
		pidFile: filepath.Join(dir, name+".pid"),
		logFile: filepath.Join(dir, name+".log"),
		done:    make(chan struct{}),
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()

	launch := []string{"-c", launchScript, "launch", p.pidFile, filepath.Join(dir, runningFile), binary}
	p.cmd = exec.Command("/bin/sh", append(launch, args...)...) // #nosec G204 -- a fixed script
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A process group of its own: Ctrl-C in a terminal goes to the caller only, which then stops this process in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.exit = p.cmd.Wait()
		_ = os.Remove(p.pidFile) // the pid may soon be another process's
		close(p.done)
	}()
	return p, nil
}

// alive reports whether the process runs. A nil process does not.
func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends a signal to a living process.
func (p *process) signal(sig os.Signal) error {
	if !p.alive() {
		return errNotRunning
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// kill kills the process and waits until it is gone. The process may have ended, or be nil.
func (p *process) kill() {
	if p.alive() {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// terminate sends SIGTERM, waits for the end, and kills the process after grace.
func (p *process) terminate(grace time.Duration) {
	if !p.alive() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a paused one would not see the first
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
	}
}

// await calls check until it returns nil. It gives up when ctx or the process ends; the error has check's last error and the
// end of the log.
func (p *process) await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout) // bounds a single check, too
	defer cancel()
	err := poll.Try(ctx, startTimeout, pollEvery, what, func() error {
		if !p.alive() {
			return poll.Wrong(fmt.Sprintf("%s has ended: %v", p.name, p.exit))
		}
		return check(ctx)
	})
	if err != nil {
		log, _ := os.ReadFile(p.logFile)
		return fmt.Errorf("%w\n%s", err, binaries.Tail(log))
	}
	return nil
}

// pauseTimeout bounds the wait for the threads of a paused process to stop.
const pauseTimeout = time.Minute

// pause sends SIGSTOP and waits until all threads have stopped: just after the signal, one of them may still answer. Without
// /proc it does not wait.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := poll.Try(context.Background(), pauseTimeout, time.Millisecond, "pause "+p.name, func() error {
		if !isStopped(p.cmd.Process.Pid) {
			return errors.New("some of its threads run")
		}
		return nil
	})
	if err != nil {
		_ = p.signal(syscall.SIGCONT) // other tests may use the process
	}
	return err
}

// isStopped reports whether all threads of a process are stopped, or /proc does not say.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	for _, name := range threads {
		stat, err := os.ReadFile(name) // #nosec G304 -- below /proc
		if err != nil {
			continue // the thread has ended
		}
		// PID (COMMAND) STATE …, where the command may contain parentheses.
		const nameEnd = ") "
		i := bytes.LastIndex(stat, []byte(nameEnd))
		if i >= 0 && !bytes.HasPrefix(stat[i+len(nameEnd):], []byte("T")) {
			return false
		}
	}
	return true
}

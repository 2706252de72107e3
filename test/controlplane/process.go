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

// launchScript writes its own pid to $1, makes sure that the reaper is not at work yet ($2
// exists), and becomes the program.
const launchScript = `pid=$1; running=$2; shift 2
echo $$ >"$pid" && [ -e "$running" ] && exec "$@"`

// pollEvery is the time between two looks at whether something is ready.
const pollEvery = 50 * time.Millisecond

// A process is a child with its pid in DIR/NAME.pid and its output in DIR/NAME.log.
type process struct {
	name    string
	pidFile string
	logFile string
	started time.Time
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process is gone
	exit    error         // why; read after done
}

// startProcess starts a program. Its log file is continued if there is one.
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
	// A group of its own: Ctrl-C in a terminal is for the caller, which then stops us in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.exit = p.cmd.Wait()
		_ = os.Remove(p.pidFile) // the number may soon be another's
		close(p.done)
	}()
	return p, nil
}

// alive says whether the process has not ended yet. A nil process is not alive.
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

// kill ends the process at once and waits until it is gone. It may be gone already, or nil.
func (p *process) kill() {
	if p.alive() {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// terminate asks the process to end, waits for it, and kills it when grace is over.
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

// await polls check until it returns nil. It gives up when ctx ends or the process does, and
// then says what check said last and how the log ends.
func (p *process) await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout) // a look may take as long, too
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

// pauseWait bounds the wait for the threads of a paused process to stop.
const pauseWait = time.Minute

// pause stops the execution of a process and returns when all of it stands still: the signal
// alone returns before its threads have noticed, and one of them may still answer. Where there
// is no /proc to see that, it returns after the signal.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := poll.Try(context.Background(), pauseWait, time.Millisecond, "pause "+p.name, func() error {
		if !standsStill(p.cmd.Process.Pid) {
			return errors.New("some of its threads did not stop")
		}
		return nil
	})
	if err != nil {
		_ = p.signal(syscall.SIGCONT) // whoever shares it goes on
	}
	return err
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

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// helperEnv makes the test binary a process that starts a control plane and waits.
const helperEnv = "CONTROLPLANE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	if err := helper(); err != nil {
		panic(err)
	}
}

// started is what a helper has started.
type started struct {
	Dir  string
	PIDs []int
}

// helper starts a control plane, pauses its API server, says what it is, and stops it at the end of its
// input.
func helper() error {
	cp, err := Start(context.Background(), Options{})
	if err != nil {
		return err
	}
	defer cp.Stop()
	if err := cp.PauseAPIServer(); err != nil { // a paused process must end, too
		return err
	}
	pids := []int{cp.etcd.cmd.Process.Pid, cp.first.process.cmd.Process.Pid, cp.reaper.cmd.Process.Pid}
	if err := json.NewEncoder(os.Stdout).Encode(started{cp.Dir(), pids}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestNothingIsLeft: however a process ends that has started a control plane, the control plane's processes
// and files are gone soon.
func TestNothingIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"killed":  func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() },
		"stopped": func(_ *exec.Cmd, input io.Closer) error { return input.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0]) // #nosec G204 G702 -- this test itself
			cmd.Env = append(os.Environ(), helperEnv+"=1")
			cmd.Stderr = os.Stderr
			input, err := cmd.StdinPipe()
			expect.NoError(t, err)
			output, err := cmd.StdoutPipe()
			expect.NoError(t, err)
			expect.NoError(t, cmd.Start())
			var left started
			expect.NoError(t, json.NewDecoder(output).Decode(&left))
			for _, pid := range left.PIDs {
				if !runs(pid) {
					t.Fatalf("process %d does not run", pid)
				}
			}
			expect.NoError(t, end(cmd, input))
			_ = cmd.Wait()
			for _, pid := range left.PIDs {
				poll.Until(t, time.Minute, "process "+strconv.Itoa(pid)+" is gone", func() bool { return !runs(pid) })
			}
			poll.Until(t, time.Minute, left.Dir+" is gone", func() bool {
				_, err := os.Lstat(left.Dir)
				return errors.Is(err, os.ErrNotExist)
			})
		})
	}
}

// runs says whether a process exists and is not merely waiting for its parent to notice its
// end: where the first process of a container does not reap, the dead stay listed.
func runs(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

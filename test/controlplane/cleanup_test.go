package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

func TestKilledProcessLeavesNothing(t *testing.T) {
	long(t)
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) // #nosec G204 G702 -- this test itself
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe() // kept open: its end would end the helper in order
	expect.NoError(t, err)
	defer func() { _ = input.Close() }()
	output, err := cmd.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, cmd.Start())
	var report helperReport
	expect.NoError(t, json.NewDecoder(output).Decode(&report))
	for _, pid := range report.PIDs {
		if !running(pid) {
			t.Fatalf("process %d does not run", pid)
		}
	}
	if report.Dir == shared.Dir() || report.URL == shared.URL() {
		t.Errorf("two control planes share %s or %s", report.Dir, report.URL)
	}

	expect.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, pid := range report.PIDs {
		poll.Until(t, patience, "process "+strconv.Itoa(pid)+" is gone", func() bool { return !running(pid) })
	}
	poll.Until(t, patience, report.Dir+" is gone", func() bool { return !exists(t, report.Dir) })
	poll.Until(t, patience, "another control plane has not suffered", func() bool {
		code, _ := get(t, shared, Admin, "/readyz")
		return code == http.StatusOK
	})
}

func TestStop(t *testing.T) {
	long(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	cp, err := Start(t.Context(), Options{Dir: dir, APIServerArgs: []string{"--profiling=false"}})
	expect.NoError(t, err)
	defer cp.Stop()
	for _, p := range []*ControlPlane{cp, shared} {
		want := http.StatusOK
		if p == cp {
			want = http.StatusNotFound // the argument took effect, for this one only
		}
		if code, _ := get(t, p, Admin, "/debug/pprof/"); code != want {
			t.Errorf("profiling on %s: %d, want %d", p.URL(), code, want)
		}
	}
	pids := []int{cp.etcd.cmd.Process.Pid, cp.apiserver.cmd.Process.Pid, cp.reaper.cmd.Process.Pid}
	if err := cp.PauseAPIServer(); err != nil { // a paused process must end, too
		t.Fatal(err)
	}
	cp.Stop()
	cp.Stop()
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d runs after Stop", pid)
		}
	}
	if exists(t, dir) {
		t.Errorf("%s exists after Stop", dir)
	}
	for name, err := range map[string]error{
		"StartAPIServer": cp.StartAPIServer(t.Context()),
		"KillAPIServer":  cp.KillAPIServer(),
		"RestoreEtcd":    cp.RestoreEtcd(t.Context(), EtcdSnapshot{}),
	} {
		if !errors.Is(err, errStopped) {
			t.Errorf("%s after Stop: %v", name, err)
		}
	}
}

// running says whether a process exists and is not merely waiting for its parent to notice its
// end: where the first process of a container does not reap, the dead stay listed.
func running(pid int) bool {
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

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

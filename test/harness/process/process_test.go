package process

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestCPU: CPU time is read as ps writes it, and of one's own process it is more than none.
func TestCPU(t *testing.T) {
	for text, want := range map[string]time.Duration{"0:12.34": 12340 * time.Millisecond, "01:02:03": time.Hour + 2*time.Minute + 3*time.Second} {
		if got, err := ofPS(text); err != nil || got.Round(time.Millisecond) != want {
			t.Errorf("ps says %s: %v, %v", text, got, err)
		}
	}
	if _, err := ofPS("nothing"); err == nil {
		t.Error("no error for nothing")
	}
	so, err := CPU(os.Getpid())
	if err != nil || so <= 0 {
		t.Errorf("%v, %v", so, err)
	}
	if used, err := Used(func() error { return nil }, os.Getpid(), os.Getppid()); err != nil || len(used) != 2 || used[0] < 0 || used[0] > time.Hour {
		t.Errorf("%v, %v", used, err)
	}
	if _, err := Used(func() error { return os.ErrClosed }, os.Getpid()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("what failed has used something: %v", err)
	}
}

// TestMemory: a process takes at least what it holds, and at its peak no less.
func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	kept := make([]byte, 16<<20)
	for i := range kept {
		kept[i] = 1
	}
	if now, peak, err := Memory(os.Getpid()); err != nil || now < int64(len(kept)) || peak < now {
		t.Errorf("%d bytes, and at most %d: %v", now, peak, err)
	}
	runtime.KeepAlive(kept)
	if _, _, err := Memory(-1); err == nil {
		t.Error("what is no process has memory")
	}
}

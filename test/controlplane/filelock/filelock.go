// Package filelock provides locks between processes.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const lockRetry = 200 * time.Millisecond

// A Lock is an advisory lock between processes. The kernel releases it when the process
// ends, however it ends. The file stays: if it were removed, two processes could hold the lock.
type Lock struct{ file *os.File }

// Try acquires the lock on path if nobody holds it. ok reports whether it did.
func Try(path string) (l *Lock, ok bool, err error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open lock file: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{file: f}, true, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// Wait acquires the lock on path, and waits for its holder until ctx ends. It calls waiting
// once if it has to wait.
func Wait(ctx context.Context, path string, waiting func()) (*Lock, error) {
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	for first := true; ; first = false {
		l, ok, err := Try(path)
		if err != nil || ok {
			return l, err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Unlock releases the lock.
func (l *Lock) Unlock() { _ = l.file.Close() }

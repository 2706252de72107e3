package controlplane

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

// A fileLock is an advisory lock between processes. The kernel gives it up when the process
// ends, however it ends. The file itself stays: removing it would let two holders in.
type fileLock struct{ file *os.File }

// tryLock takes the lock on path if nobody holds it; ok says whether it did.
func tryLock(path string) (l *fileLock, ok bool, err error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open lock file: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &fileLock{file: f}, true, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// waitLock takes the lock on path, waiting for its holder until ctx ends. It calls waiting
// once if it has to wait.
func waitLock(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	for first := true; ; first = false {
		l, ok, err := tryLock(path)
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

// unlock gives the lock up.
func (l *fileLock) unlock() { _ = l.file.Close() }

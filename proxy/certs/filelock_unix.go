//go:build unix

package certs

import (
	"os"
	"path/filepath"
	"syscall"
)

// lockFile waits until no other process holds the file at path, and holds it until the returned
// function is called or the process ends. The file stays: removing it would let two holders in.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR { //nolint:errorlint // a system call's own
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

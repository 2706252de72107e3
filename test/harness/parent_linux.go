package harness

import (
	"runtime"
	"syscall"
)

// lockThread keeps the goroutine on its thread.
func lockThread() { runtime.LockOSThread() }

// dieWithParent returns attributes with which the kernel kills the child when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

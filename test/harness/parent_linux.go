package harness

import (
	"runtime"
	"syscall"
)

// lockThread keeps the goroutine on its thread. The kernel kills a child when the thread that started it ends (see
// dieWithParent), so that thread must stay.
func lockThread() { runtime.LockOSThread() }

// dieWithParent returns attributes with which the kernel kills the child when the thread that started it ends. The child is in
// a process group of its own, so that a Ctrl-C for the tests does not reach it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

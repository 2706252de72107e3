package harness

import (
	"runtime"
	"syscall"
)

func lockThread() { runtime.LockOSThread() }

// dieWithParent makes the kernel kill the child when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

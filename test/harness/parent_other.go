//go:build !linux

package harness

import "syscall"

func lockThread() {}

// dieWithParent has no equivalent here: a killed test leaves the child to the user.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

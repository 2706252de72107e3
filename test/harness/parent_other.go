//go:build !linux

package harness

import "syscall"

// lockThread does nothing: dieWithParent needs no thread.
func lockThread() {}

// dieWithParent returns attributes for the child. Without Linux the child of a killed test goes on.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

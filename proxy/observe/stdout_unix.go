//go:build unix

package observe

import (
	"fmt"
	"os"
	"syscall"
)

// duplicate returns another descriptor of an open file. With standard output's own descriptor, the
// process would end when its reader goes away: Go raises SIGPIPE for descriptors 1 and 2, and
// returns an error for all others (os/signal, "SIGPIPE").
func duplicate(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}

//go:build unix

package observe

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestDuplicate loses the reader of a pipe that stands for standard output.
func TestDuplicate(t *testing.T) {
	read, write, err := os.Pipe()
	expect.NoError(t, err)
	out, err := duplicate(write)
	expect.NoError(t, err)
	if out.Fd() == write.Fd() {
		t.Error("the same descriptor")
	}
	expect.NoError(t, write.Close())
	if _, err := out.WriteString("x"); err != nil {
		t.Error(err)
	}
	expect.NoError(t, read.Close())
	if _, err := out.WriteString("x"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("without a reader: %v", err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}

//go:build unix

package audit

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// TestDuplicate loses the reader of a pipe that stands for standard output.
func TestDuplicate(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := duplicate(write)
	if err != nil {
		t.Fatal(err)
	}
	if out.Fd() == write.Fd() {
		t.Error("the same descriptor")
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteString("x"); err != nil {
		t.Error(err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteString("x"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("without a reader: %v", err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}

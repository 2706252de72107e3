package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunUntilStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	dir := filepath.Join(t.TempDir(), "made")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, stdout := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"--dir", dir}, stdout, &stderr)
		_ = stdout.Close()
	}()
	var kubeconfigs int
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		if _, path, ok := strings.Cut(lines.Text(), "export KUBECONFIG="); ok {
			kubeconfigs++
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			stop()
		}
	}
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d: %s", got, &stderr)
	}
	if kubeconfigs == 0 {
		t.Error("printed no kubeconfig")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after the end: %v", dir, err)
	}
}

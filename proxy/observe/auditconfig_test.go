package observe

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestFile: the file and its folder are made for their owner only, and are appended to; at
// --audit-log-maxsize the file is rotated, and so many are kept.
func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "audit.log")
	long := strings.Repeat("x", 600_000)
	for _, maxSize := range []uint32{0, 1} {
		for _, id := range []string{"one", "two", "three"} {
			l, err := OpenAuditLog(AuditConfig{Path: path, MaxSize: maxSize, MaxBackups: 1})
			expect.NoError(t, err)
			expect.NoError(t, write(l, id+long))
			expect.NoError(t, l.Close())
		}
		if maxSize == 0 {
			content, err := os.ReadFile(path) // #nosec G304 -- the test's own
			expect.NoError(t, err)
			expect.Same(t, 3, strings.Count(string(content), "\n"))
		}
	}
	files, err := os.ReadDir(dir)
	expect.NoError(t, err)
	for _, file := range files {
		info, err := file.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // lumberjack deletes it in a goroutine
		}
		expect.NoError(t, err)
		expect.Same(t, os.FileMode(0o600), info.Mode())
	}
	info, err := os.Stat(dir)
	expect.NoError(t, err)
	expect.Same(t, os.FileMode(0o700)|os.ModeDir, info.Mode())
	content, err := os.ReadFile(path) // #nosec G304 -- the test's own
	expect.NoError(t, err)
	if len(files) < 2 || strings.Count(string(content), "\n") != 1 {
		t.Errorf("not rotated: %v, %d bytes", files, len(content))
	}
}

// TestStandardOutputWithoutReader: a process whose audit log is its standard output goes on when the reader has gone,
// and says that events cannot be written.
func TestStandardOutputWithoutReader(t *testing.T) {
	const child = "LISTPROXY_TEST_AUDIT_CHILD"
	if os.Getenv(child) != "" {
		l, err := OpenAuditLog(AuditConfig{Path: "-"})
		expect.NoError(t, err)
		_, err = io.ReadAll(os.Stdin) // until the reader has gone
		expect.NoError(t, err)
		if err := write(l, "id"); err == nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") // #nosec G204 -- the test itself
	process.Env = append(os.Environ(), child+"=1")
	out, err := process.StdoutPipe()
	expect.NoError(t, err)
	wait, err := process.StdinPipe()
	expect.NoError(t, err)
	expect.NoError(t, process.Start())
	expect.NoError(t, out.Close())
	expect.NoError(t, wait.Close())
	expect.NoError(t, process.Wait())
}

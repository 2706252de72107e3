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

// TestAuditFile: OpenAuditLog makes the file and its folder for their owner only, and appends to an existing file. The file is
// rotated at MaxSize megabytes, but not if MaxSize is 0.
func TestAuditFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "audit.log")
	longID := strings.Repeat("x", 600_000) // two events are more than a megabyte
	writeThreeEvents := func(maxMegabytes uint32) {
		for range 3 { // each by a log of its own, which must append
			l, err := OpenAuditLog(AuditConfig{Path: path, MaxSize: maxMegabytes, MaxBackups: 1})
			expect.NoError(t, err)
			expect.NoError(t, writeEvent(l, longID))
			expect.NoError(t, l.Close())
		}
	}
	countLines := func() int {
		content, err := os.ReadFile(path) // #nosec G304 -- the test's own
		expect.NoError(t, err)
		return strings.Count(string(content), "\n")
	}
	// Without a bound, all events are in one file.
	const noBound = 0
	writeThreeEvents(noBound)
	expect.Same(t, 3, countLines())
	// With a bound of one megabyte, each event begins a new file, since two do not fit into one.
	writeThreeEvents(1)
	expect.Same(t, 1, countLines())
	// Only the owner may read the files and the folder.
	files, err := os.ReadDir(dir)
	expect.NoError(t, err)
	if len(files) < 2 {
		t.Errorf("the files are %v, want also a rotated one", files)
	}
	for _, file := range files {
		info, err := file.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // lumberjack deletes old files in a goroutine
		}
		expect.NoError(t, err)
		expect.Same(t, os.FileMode(0o600), info.Mode())
	}
	info, err := os.Stat(dir)
	expect.NoError(t, err)
	expect.Same(t, os.FileMode(0o700)|os.ModeDir, info.Mode())
}

// TestStandardOutputWithoutReader: a process whose audit log is its standard output goes on when the reader has gone.
// AuditLog.Write then returns an error. The write is made in a child process, since a write to a broken standard output would
// kill a process that does not ignore SIGPIPE.
func TestStandardOutputWithoutReader(t *testing.T) {
	const child = "LISTPROXY_TEST_AUDIT_CHILD"
	if os.Getenv(child) != "" { // the child: it exits with 0 if Write returned an error
		l, err := OpenAuditLog(AuditConfig{Path: "-"})
		expect.NoError(t, err)
		_, err = io.ReadAll(os.Stdin) // until the parent has closed this process's standard output
		expect.NoError(t, err)
		if err := writeEvent(l, "id"); err == nil {
			os.Exit(3) // the parent's Wait then fails
		}
		os.Exit(0)
	}
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") // #nosec G204 -- the test itself
	process.Env = append(os.Environ(), child+"=1")
	stdout, err := process.StdoutPipe()
	expect.NoError(t, err)
	stdin, err := process.StdinPipe()
	expect.NoError(t, err)
	expect.NoError(t, process.Start())
	expect.NoError(t, stdout.Close())
	expect.NoError(t, stdin.Close()) // lets the child write
	expect.NoError(t, process.Wait())
}

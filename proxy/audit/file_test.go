package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// writeLine writes a line, which must work.
func writeLine(t *testing.T, f *logFile, line string) {
	t.Helper()
	if n, err := f.Write([]byte(line + "\n")); err != nil || n != len(line)+1 {
		t.Fatalf("wrote %d bytes of %q: %v", n, line, err)
	}
}

func newFile(t *testing.T, c Config) *logFile {
	t.Helper()
	f, err := openFile(c)
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func wantFile(t *testing.T, when, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	expect.NoError(t, err)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	expect.NoError(t, err)
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

func TestAuditFileIsItsOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "audit.log")
	f := newFile(t, Config{Path: path})
	wantMode(t, path, 0o600)
	wantMode(t, filepath.Dir(path), 0o700)
	writeLine(t, f, "1")
	expect.NoError(t, os.RemoveAll(filepath.Dir(path)))
	writeLine(t, f, "2")
	wantFile(t, "after the folder was removed", path, "2\n")
	wantMode(t, path, 0o600)
	wantMode(t, filepath.Dir(path), 0o700)
}

func TestAuditFileGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	expect.NoError(t, os.WriteFile(path, []byte("0\n"), 0o640))
	f := newFile(t, Config{Path: path, MaxSize: 1})
	writeLine(t, f, "1")
	wantFile(t, "an older file", path, "0\n1\n")
	wantMode(t, path, 0o640)

	expect.NoError(t, os.Rename(path, path+".moved"))
	writeLine(t, f, "2")
	wantFile(t, "the file was moved away", path, "2\n")
	wantFile(t, "the file that was moved away", path+".moved", "0\n1\n")

	expect.NoError(t, os.Rename(path+".moved", path))
	writeLine(t, f, "3")
	wantFile(t, "another file is in its place", path, "0\n1\n3\n")

	expect.NoError(t, os.Truncate(path, 0))
	writeLine(t, f, "4")
	wantFile(t, "the file was emptied", path, "4\n")
}

// TestAuditFileCannotBeMade puts a file where the folder was.
func TestAuditFileCannotBeMade(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	path := filepath.Join(folder, "audit.log")
	f := newFile(t, Config{Path: path})
	expect.NoError(t, os.RemoveAll(folder))
	expect.NoError(t, os.WriteFile(folder, nil, 0o600))
	if n, err := f.Write([]byte("1\n")); n != 0 || err == nil {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
	if _, err := Open(Config{Path: path}, proxytest.DiscardLog()); err == nil ||
		!strings.HasPrefix(err.Error(), "--audit-log-path="+path+" cannot be written: ") {
		t.Errorf("opened: %v", err)
	}
	expect.NoError(t, os.Remove(folder))
	writeLine(t, f, "1")
	wantFile(t, "the folder can be made again", path, "1\n")
}

func TestAuditFileRotates(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "audit.log")
	f := newFile(t, Config{Path: path, MaxSize: 1})
	line := strings.Repeat("x", 300<<10)
	for range 4 {
		writeLine(t, f, line)
	}
	rotated, err := filepath.Glob(filepath.Join(folder, "audit-*.log"))
	if err != nil || len(rotated) != 1 {
		t.Fatalf("rotated files: %q, %v", rotated, err)
	}
	wantFile(t, "the first three lines", rotated[0], strings.Repeat(line+"\n", 3))
	wantFile(t, "the fourth line", path, line+"\n")
	wantMode(t, path, 0o600)
	wantMode(t, rotated[0], 0o600)
}

func TestAuditFileNeverRotates(t *testing.T) {
	folder := t.TempDir()
	f := newFile(t, Config{Path: filepath.Join(folder, "audit.log")})
	if err := os.Truncate(f.path, 200*megabyte); err != nil { // it takes no room
		t.Fatal(err)
	}
	writeLine(t, f, "1")
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

// fullDisk is a file on a disk that has room for a few bytes only.
type fullDisk struct {
	path string
	room int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	file, err := os.OpenFile(d.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	n, err := file.Write(p[:min(d.room, len(p))])
	d.room -= n
	if err = errors.Join(err, file.Close()); err == nil && n < len(p) {
		err = errDiskFull
	}
	return n, err
}

func (*fullDisk) Rotate() error { return errDiskFull }
func (*fullDisk) Close() error  { return nil }

// TestAuditFileTakesTornLinesAway lets the disk fill up in the middle of a line.
func TestAuditFileTakesTornLinesAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	disk := &fullDisk{path: path, room: 6}
	f := &logFile{path: path, file: disk}
	writeLine(t, f, "one")
	n, err := f.Write([]byte("two\n"))
	if n != 0 || !errors.Is(err, errDiskFull) {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
	wantFile(t, "full", path, "one\n")
	disk.room = 100
	writeLine(t, f, "two")
	wantFile(t, "with room again", path, "one\ntwo\n")

	f.max = 10
	if n, err := f.Write([]byte("three\n")); n != 0 || !errors.Is(err, errDiskFull) {
		t.Errorf("wrote %d bytes to a file that cannot be rotated: %v", n, err)
	}
}

func TestAuditConfig(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		want   string
	}{
		{"none", Config{}, ""},
		{"all", Config{Path: "-", MaxSize: 100, MaxBackups: 3, MaxAge: 7, Compress: true}, ""},
		{"zeros", Config{Path: "/audit.log"}, ""},
		{"negative", Config{Path: "-", MaxSize: -1, MaxAge: -2}, "" +
			"--audit-log-maxsize=-1 is negative: use 0 never to rotate the file, or a positive number\n" +
			"--audit-log-maxage=-2 is negative: use 0 to keep rotated files for ever, or a positive number"},
		{"no log", Config{MaxBackups: 1, Compress: true}, "" +
			"--audit-log-maxbackup=1 says how an audit log is kept, but there is none: set --audit-log-path too, or remove it\n" +
			"--audit-log-compress says how an audit log is kept, but there is none: set --audit-log-path too, or remove it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.config.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAuditLogToFile goes the whole way, with a log that is opened twice.
func TestAuditLogToFile(t *testing.T) {
	config := Config{Path: filepath.Join(t.TempDir(), "audit.log"), MaxSize: 1, MaxBackups: 1, MaxAge: 1, Compress: true}
	for _, id := range []string{"1", "2"} {
		l, err := Open(config, proxytest.DiscardLog())
		expect.NoError(t, err)
		begin(t, l).Complete(completed(id))
		closeLog(t, l)
	}
	written, err := os.ReadFile(config.Path)
	expect.NoError(t, err)
	if diff := cmp.Diff([]string{"1", "2"}, auditIDs(t, written)); diff != "" {
		t.Error(diff)
	}
}

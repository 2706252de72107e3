package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

const at = "2026-11-01T10:20:30Z"

// entry is what unpacking gives back.
type entry struct {
	Name, Content, Mode string
	Changed             time.Time
}

var want = []entry{
	{"listproxy-v1-linux-arm64/listproxy", "\x7fELF", "-rwxr-xr-x", time.Date(2026, 11, 1, 10, 20, 30, 0, time.UTC)},
	{"listproxy-v1-linux-arm64/LICENSE", "Apache", "-rw-r--r--", time.Date(2026, 11, 1, 10, 20, 30, 0, time.UTC)},
}

// pack makes an archive of two files that somebody else made otherwise: at another time, with
// another umask.
func pack(t *testing.T, suffix string, program, text os.FileMode) []byte {
	t.Helper()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "listproxy"), filepath.Join(dir, "LICENSE")}
	for i, mode := range []os.FileMode{program, text} {
		expect.NoError(t, os.WriteFile(files[i], []byte(want[i].Content), 0o600))
		expect.NoError(t, os.Chmod(files[i], mode))
	}
	out := filepath.Join(dir, "listproxy-v1-linux-arm64"+suffix)
	expect.NoError(t, run(append([]string{"--output", out, "--time", at}, files...)))
	packed, err := os.ReadFile(out) // #nosec G304 -- of this test
	expect.NoError(t, err)
	return packed
}

func TestArchive(t *testing.T) {
	for suffix, unpack := range map[string]func(*testing.T, []byte) []entry{".tar.gz": untar, ".zip": unzip} {
		t.Run(suffix, func(t *testing.T) {
			packed := pack(t, suffix, 0o755, 0o644)
			expect.Same(t, want, unpack(t, packed))
			if !bytes.Equal(packed, pack(t, suffix, 0o700, 0o600)) {
				t.Error("made by another it is another one")
			}
		})
	}
}

func untar(t *testing.T, packed []byte) []entry {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	expect.NoError(t, err)
	var entries []entry
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		expect.NoError(t, err)
		entries = append(entries, entry{header.Name, content(t, archive), header.FileInfo().Mode().String(), header.ModTime.UTC()})
	}
}

func unzip(t *testing.T, packed []byte) []entry {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	expect.NoError(t, err)
	var entries []entry
	for _, f := range archive.File {
		r, err := f.Open()
		expect.NoError(t, err)
		entries = append(entries, entry{f.Name, content(t, r), f.Mode().String(), f.Modified.UTC()})
		expect.NoError(t, r.Close())
	}
	return entries
}

func content(t *testing.T, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	expect.NoError(t, err)
	return string(all)
}

func TestArchiveRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"another form":  {[]string{"--output", filepath.Join(dir, "x.rar"), "--time", at, "main.go"}, ".tar.gz or .zip"},
		"no time":       {[]string{"--output", filepath.Join(dir, "x.zip"), "main.go"}, "--time"},
		"nothing":       {[]string{"--output", filepath.Join(dir, "x.zip"), "--time", at}, "no files"},
		"a lost file":   {[]string{"--output", filepath.Join(dir, "x.zip"), "--time", at, "lost"}, "lost"},
		"another flag":  {[]string{"--format", "zip"}, "--format"},
		"to no folder ": {[]string{"--output", filepath.Join(dir, "no", "x.zip"), "--time", at, "main.go"}, "x.zip"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(tt.args); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

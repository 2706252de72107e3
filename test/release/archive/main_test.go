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
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// entry is what unpacking gives back.
type entry struct {
	Name, Content, Mode string
	Changed             time.Time
}

// TestArchive: both forms give back what was packed, and are the same when somebody makes them at another
// time, with another umask.
func TestArchive(t *testing.T) {
	changed := time.Date(2026, 11, 1, 10, 20, 30, 0, time.UTC)
	want := []entry{
		{"listproxy-v1-linux-arm64/", "", "drwxr-xr-x", changed},
		{"listproxy-v1-linux-arm64/LICENSE", "Apache", "-rw-r--r--", changed},
		{"listproxy-v1-linux-arm64/listproxy", "\x7fELF", "-rwxr-xr-x", changed},
	}
	for suffix, unpack := range map[string]func(*testing.T, []byte) []entry{".tar.gz": untar, ".zip": unzip} {
		made := func(program, text os.FileMode) []byte {
			dir := t.TempDir()
			files := []string{filepath.Join(dir, "listproxy"), filepath.Join(dir, "LICENSE")}
			for i, mode := range []os.FileMode{program, text} {
				expect.NoError(t, os.WriteFile(files[i], []byte(want[2-i].Content), 0o600))
				expect.NoError(t, os.Chmod(files[i], mode))
			}
			out := filepath.Join(dir, "listproxy-v1-linux-arm64"+suffix)
			expect.NoError(t, pack(out, "2026-11-01T10:20:30Z", files))
			packed, err := os.ReadFile(out) // #nosec G304 -- of this test
			expect.NoError(t, err)
			return packed
		}
		packed := made(0o755, 0o644)
		expect.Same(t, want, unpack(t, packed))
		if !bytes.Equal(packed, made(0o700, 0o600)) {
			t.Errorf("%s: made by another it is another one", suffix)
		}
	}
}

func untar(t *testing.T, packed []byte) (entries []entry) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	expect.NoError(t, err)
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		expect.NoError(t, err)
		content, err := io.ReadAll(archive)
		expect.NoError(t, err)
		entries = append(entries, entry{header.Name, string(content), header.FileInfo().Mode().String(), header.ModTime.UTC()})
	}
}

func unzip(t *testing.T, packed []byte) (entries []entry) {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	expect.NoError(t, err)
	for _, f := range archive.File {
		r, err := f.Open()
		expect.NoError(t, err)
		content, err := io.ReadAll(r)
		expect.NoError(t, err)
		entries = append(entries, entry{f.Name, string(content), f.Mode().String(), f.Modified.UTC()})
	}
	return entries
}

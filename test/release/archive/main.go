// Command archive packs files into one archive, a .zip or a .tar.gz by its name, that is the same
// to the last byte wherever it is made: of the files it has the names, the bytes and whether they
// can be executed, in a folder with the archive's name; the time is that of the release, and owners are
// nobody.
//
//	archive OUTPUT TIME FILE...
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"
)

func main() {
	if len(os.Args) < 4 {
		_, _ = fmt.Fprintln(os.Stderr, "archive OUTPUT TIME FILE...")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func pack(output, at string, files []string) error {
	changed, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return err
	}
	folder, isZip := strings.CutSuffix(filepath.Base(output), ".zip")
	folder = strings.TrimSuffix(folder, ".tar.gz")
	packed := fstest.MapFS{folder: {Mode: fs.ModeDir | 0o755, ModTime: changed.UTC()}}
	for _, name := range files {
		info, err := os.Stat(name) // #nosec G703 -- as below
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name) // #nosec G304 G703 -- what the caller wants to be packed
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644) // the umask of who makes it is no part of a release
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		packed[path.Join(folder, filepath.Base(name))] = &fstest.MapFile{Data: content, Mode: mode, ModTime: changed.UTC()}
	}
	out, err := os.Create(output) // #nosec G304 G703 -- what the caller wants to be made
	if err != nil {
		return err
	}
	if isZip {
		z := zip.NewWriter(out)
		return errors.Join(z.AddFS(packed), z.Close(), out.Close())
	}
	// Go's gzip writes neither a time nor a name unless told to.
	compressed, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // a level that there is
	t := tar.NewWriter(compressed)
	return errors.Join(t.AddFS(packed), t.Close(), compressed.Close(), out.Close())
}

// Command archive packs files into an archive, a .zip or a .tar.gz by its name. The files are in a folder with the archive's
// name. Archives are reproducible: of each file, only the name, the bytes and whether it is executable count; all have the time
// of the release, and no owners.
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

// pack writes an archive of files. modified is the time in RFC 3339 that all have.
func pack(output, modified string, files []string) error {
	modTime, err := time.Parse(time.RFC3339, modified)
	if err != nil {
		return err
	}
	folder, isZip := strings.CutSuffix(filepath.Base(output), ".zip")
	folder = strings.TrimSuffix(folder, ".tar.gz")
	packed := fstest.MapFS{folder: {Mode: fs.ModeDir | 0o755, ModTime: modTime.UTC()}}
	for _, name := range files {
		info, err := os.Stat(name) // #nosec G703 -- as below
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name) // #nosec G304 G703 -- what the caller wants to be packed
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644) // whatever the umask of the file's author
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		packed[path.Join(folder, filepath.Base(name))] = &fstest.MapFile{Data: content, Mode: mode, ModTime: modTime.UTC()}
	}
	out, err := os.Create(output) // #nosec G304 G703 -- what the caller wants to be made
	if err != nil {
		return err
	}
	if isZip {
		z := zip.NewWriter(out)
		return errors.Join(z.AddFS(packed), z.Close(), out.Close())
	}
	// The header has neither a time nor a name, which would not be reproducible.
	compressed, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // no error: the level is valid
	t := tar.NewWriter(compressed)
	return errors.Join(t.AddFS(packed), t.Close(), compressed.Close(), out.Close())
}

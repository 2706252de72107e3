// Command archive packs files into one archive, a .zip or a .tar.gz by its name, that is the same
// to the last byte wherever it is made: of the files it has the names, the bytes and whether they
// can be executed, in the order given, in a folder with the archive's name; the time is that of the
// release, and owners are nobody.
//
//	archive OUTPUT TIME FILE...
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
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

// An archive takes one file after the other.
type archive struct {
	add   func(name string, mode fs.FileMode, content []byte) error
	close func() error
}

func pack(output, at string, files []string) error {
	changed, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return err
	}
	out, err := os.Create(output) // #nosec G304 G703 -- what the caller wants to be made
	if err != nil {
		return err
	}
	folder, isZip := strings.CutSuffix(filepath.Base(output), ".zip")
	packed := newTar(out, changed.UTC())
	if isZip {
		packed = newZip(out, changed.UTC())
	}
	folder = strings.TrimSuffix(folder, ".tar.gz")
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
		if err := packed.add(path.Join(folder, filepath.Base(name)), mode, content); err != nil {
			return err
		}
	}
	return errors.Join(packed.close(), out.Close())
}

func newTar(out io.Writer, changed time.Time) archive {
	// Go's gzip writes neither a time nor a name unless told to.
	compressed, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // a level that there is
	t := tar.NewWriter(compressed)
	return archive{
		add: func(name string, mode fs.FileMode, content []byte) error {
			err := t.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: changed, Format: tar.FormatUSTAR,
			})
			if err == nil {
				_, err = t.Write(content)
			}
			return err
		},
		close: func() error { return errors.Join(t.Close(), compressed.Close()) },
	}
}

func newZip(out io.Writer, changed time.Time) archive {
	z := zip.NewWriter(out)
	return archive{
		add: func(name string, mode fs.FileMode, content []byte) error {
			header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: changed}
			header.SetMode(mode)
			w, err := z.CreateHeader(header)
			if err == nil {
				_, err = w.Write(content)
			}
			return err
		},
		close: z.Close,
	}
}

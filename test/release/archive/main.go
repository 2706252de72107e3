// Command archive packs files into one archive, a .zip or a .tar.gz by its name, that is the same
// to the last byte wherever it is made: of the files it has the names, the bytes and whether they
// can be executed, in the order given; the time is that of the release, and owners are nobody.
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := pflag.NewFlagSet("archive", pflag.ContinueOnError)
	output := flags.String("output", "", "the archive, .tar.gz or .zip")
	at := flags.String("time", "", "when its files were changed, as in RFC 3339")
	if err := flags.Parse(args); err != nil {
		return err
	}
	changed, err := time.Parse(time.RFC3339, *at)
	if err != nil {
		return fmt.Errorf("--time: %w", err)
	}
	folder, pack, err := form(filepath.Base(*output))
	if err != nil {
		return err
	}
	var files []file
	for _, name := range flags.Args() {
		f, err := read(name, folder)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return errors.New("no files to pack")
	}
	out, err := os.Create(*output)
	if err != nil {
		return err
	}
	return errors.Join(pack(out, changed.UTC(), files), out.Close())
}

// A file as it is in the archive.
type file struct {
	name    string // in the archive
	mode    int64  // 0755 or 0644: the umask of who makes it is no part of a release
	content []byte
}

func read(name, folder string) (file, error) {
	info, err := os.Stat(name)
	if err != nil {
		return file{}, err
	}
	content, err := os.ReadFile(name) // #nosec G304 -- what the caller wants to be packed
	if err != nil {
		return file{}, err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return file{path.Join(folder, filepath.Base(name)), mode, content}, nil
}

// form says by an archive's name in which folder its files are, and what packs them.
func form(name string) (folder string, pack func(io.Writer, time.Time, []file) error, err error) {
	if folder, ok := strings.CutSuffix(name, ".tar.gz"); ok && folder != "" {
		return folder, packTar, nil
	}
	if folder, ok := strings.CutSuffix(name, ".zip"); ok && folder != "" {
		return folder, packZip, nil
	}
	return "", nil, fmt.Errorf("--output %q: give a name that ends with .tar.gz or .zip", name)
}

func packTar(out io.Writer, changed time.Time, files []file) error {
	// Go's gzip writes neither a time nor a name unless told to.
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: changed, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func packZip(out io.Writer, changed time.Time, files []file) error {
	archive := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: changed}
		header.SetMode(os.FileMode(f.mode)) // #nosec G115 -- 0755 or 0644
		w, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

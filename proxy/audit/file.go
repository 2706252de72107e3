package audit

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	fileMode   = 0o600
	folderMode = 0o700
	megabyte   = 1 << 20
)

// rotatingFile is what logFile needs of lumberjack's Logger. Close closes the file; the next
// Write opens it again, for appending if it exists.
type rotatingFile interface {
	io.WriteCloser
	Rotate() error
}

// logFile writes lines to a file that lumberjack rotates.
//
//   - Lines go into the file that the path names. If that was removed or replaced, it is made or
//     opened again; lumberjack alone would go on writing to the old file, which nobody sees.
//   - A line is written as a whole or not at all: a part of a line on a full disk is removed again.
//   - Only its owner can read the files it makes.
//
// No other process may write to the same file. It is not safe for concurrent use.
type logFile struct {
	path string
	max  int64 // bytes at which the file is rotated, 0 for never
	file rotatingFile
	open os.FileInfo // the file that is open, nil if none is
}

func openFile(c Config) (*logFile, error) {
	f := &logFile{path: c.Path, max: int64(c.MaxSize) * megabyte, file: &lumberjack.Logger{
		Filename:   c.Path,
		MaxSize:    c.MaxSize,
		MaxBackups: c.MaxBackups,
		MaxAge:     c.MaxAge,
		Compress:   c.Compress,
	}}
	if c.MaxSize == 0 {
		// Lumberjack's own zero means 100.
		f.file = &lumberjack.Logger{Filename: c.Path, MaxSize: math.MaxInt32}
	}
	if err := f.create(); err != nil {
		return nil, err
	}
	return f, nil
}

// create makes the file, and its folder, if they are missing. Then lumberjack opens an existing
// file, and appends to it; it does not append to a file that it makes itself.
func (f *logFile) create() error {
	if err := os.MkdirAll(filepath.Dir(f.path), folderMode); err != nil {
		return fmt.Errorf("make the folder of the audit log: %w", err)
	}
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("make the audit log: %w", err)
	}
	return file.Close()
}

// Write implements io.Writer. It returns how many bytes are in the file: all, or none, or the first
// few if the disk gives a second error while these are removed.
func (f *logFile) Write(line []byte) (int, error) {
	before, err := f.current()
	if err != nil {
		return 0, err
	}
	if f.max > 0 && before.Size() > 0 && before.Size()+int64(len(line)) >= f.max {
		if before, err = f.rotate(); err != nil {
			return 0, err
		}
	}
	f.open = before
	n, err := f.file.Write(line)
	if err == nil {
		return n, nil
	}
	f.close()
	if n > 0 && os.Truncate(f.path, before.Size()) == nil {
		n = 0
	}
	return n, fmt.Errorf("write to the audit log: %w", err)
}

// current returns the file that the path names. Afterwards either this file is open, or none.
func (f *logFile) current() (os.FileInfo, error) {
	info, err := os.Stat(f.path)
	if err == nil && f.open != nil && os.SameFile(info, f.open) {
		return info, nil
	}
	f.close()
	if err := f.create(); err != nil {
		return nil, err
	}
	if info, err = os.Stat(f.path); err != nil {
		return nil, fmt.Errorf("find the audit log: %w", err)
	}
	return info, nil
}

// rotate moves the file away and returns an empty one in its place.
func (f *logFile) rotate() (os.FileInfo, error) {
	err := f.file.Rotate()
	f.close()
	if err != nil {
		return nil, fmt.Errorf("rotate the audit log: %w", err)
	}
	return f.current()
}

// close closes the file. Its error is ignored: the writes before have reported theirs.
func (f *logFile) close() {
	_ = f.file.Close()
	f.open = nil
}

// Close implements io.Closer.
func (f *logFile) Close() error { return f.file.Close() }

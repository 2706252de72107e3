package observe

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	fileMode   = 0o600
	folderMode = 0o700
)

// AuditConfig configures where the audit log is written and how much of it is kept. Its fields have the meanings of
// kube-apiserver's flags --audit-log-*.
type AuditConfig struct {
	// Path is the file. "-" stands for standard output, "" for no log.
	Path string
	// MaxSize is the size in megabytes at which the file is rotated. At zero it never is.
	MaxSize uint32
	// MaxBackups is the number of rotated files that are kept. At zero all are.
	MaxBackups uint32
}

// Enabled reports whether an audit log is written.
func (c AuditConfig) Enabled() bool { return c.Path != "" }

// OpenAuditLog opens the audit log that c describes; c must be enabled. A new file is readable by its owner only; an
// existing one keeps its mode and content. No other process may write to the file. The log must be closed.
func OpenAuditLog(c AuditConfig) (*AuditLog, error) {
	out, err := openOutput(c)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path=%s cannot be written: %w: choose a path that listproxy may write", c.Path, err)
	}
	return NewAuditLog(out), nil
}

// openOutput opens the file, or standard output.
func openOutput(c AuditConfig) (io.WriteCloser, error) {
	if c.Path == "-" {
		// Unless somebody is notified of SIGPIPE, a write ends the process when the reader of standard output has gone.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		return os.Stdout, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), folderMode); err != nil {
		return nil, fmt.Errorf("make its folder: %w", err)
	}
	file, err := os.OpenFile(c.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return nil, err
	}
	size := cmp.Or(c.MaxSize, math.MaxInt32) // lumberjack's own zero means 100
	return &lumberjack.Logger{Filename: c.Path, MaxSize: int(size), MaxBackups: int(c.MaxBackups)}, file.Close()
}

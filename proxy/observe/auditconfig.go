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

// AuditConfig says where the audit log is written, and how much of it is kept. Its fields have the meanings of kube-apiserver's
// flags --audit-log-*.
type AuditConfig struct {
	// Path is the file. "-" means standard output, and "" no log.
	Path string
	// MaxSize is the size in megabytes at which the file is rotated. 0 means never.
	MaxSize uint32
	// MaxBackups is the number of rotated files that are kept. 0 means all.
	MaxBackups uint32
}

// OpenAuditLog opens the audit log that c describes, or returns nil, nil if c has no path. The caller must close the log.
//
// Only the owner can read a new file. An existing file keeps its mode and content. The file must be this process's own, since a
// rotation renames it. If the log is standard output, SIGPIPE no longer ends the process.
func OpenAuditLog(c AuditConfig) (*AuditLog, error) {
	if c.Path == "" {
		return nil, nil
	}
	out, err := openOutput(c)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path=%s cannot be written: %w: choose a path that listproxy may write", c.Path, err)
	}
	return NewAuditLog(out), nil
}

// openOutput returns standard output or a rotating file.
func openOutput(c AuditConfig) (io.WriteCloser, error) {
	if c.Path == "-" {
		// When the reader of standard output has gone, a write raises SIGPIPE. If the signal is caught, the write returns an
		// error; otherwise the process ends. Nobody needs to read the channel.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		return os.Stdout, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("make its folder: %w", err)
	}
	// lumberjack opens the file at the first event. It is opened here, too, so that an error is known at the start.
	file, err := os.OpenFile(c.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	megabytes := cmp.Or(c.MaxSize, math.MaxInt32) // MaxInt32 is never reached; lumberjack would take 0 for 100
	return &lumberjack.Logger{Filename: c.Path, MaxSize: int(megabytes), MaxBackups: int(c.MaxBackups)}, nil
}

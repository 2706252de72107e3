package observe

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	fileMode   = 0o600
	folderMode = 0o700
)

// AuditConfig says where the audit log is written and how much of it is kept. The fields and
// their meanings are those of kube-apiserver's flags --audit-log-*.
type AuditConfig struct {
	// Path of the log. "-" is standard output, "" is no log.
	Path string
	// MaxSize is the size in megabytes at which the file is rotated. Zero means never.
	MaxSize int
	// MaxBackups is how many rotated files are kept. Zero means all.
	MaxBackups int
}

// Enabled reports whether there is to be an audit log.
func (c AuditConfig) Enabled() bool { return c.Path != "" }

// Validate returns what is wrong with the configuration, in the words of the flags.
func (c AuditConfig) Validate() error {
	var problems []error
	for _, f := range []struct {
		flag  string
		value int
		zero  string
	}{
		{"--audit-log-maxsize", c.MaxSize, "never to rotate the file"},
		{"--audit-log-maxbackup", c.MaxBackups, "to keep every rotated file"},
	} {
		switch {
		case f.value < 0:
			problems = append(problems, fmt.Errorf("%s=%d is negative: use 0 %s, or a positive number", f.flag, f.value, f.zero))
		case f.value > 0 && !c.Enabled():
			problems = append(problems, fmt.Errorf("%s=%d says how an audit log is kept, but there is none: set "+
				"--audit-log-path too, or remove it", f.flag, f.value))
		}
	}
	return errors.Join(problems...)
}

// OpenAuditLog opens the audit log that c describes; c must be valid and enabled. A file that does not
// exist is created, readable by its owner only; an existing file keeps its mode and content. No
// other process may write to the file.
//
// The log must be closed in the end.
func OpenAuditLog(c AuditConfig, log *slog.Logger) (*AuditLog, error) {
	out, err := openOutput(c)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path=%s cannot be written: %w: choose a path that listproxy may write", c.Path, err)
	}
	return NewAuditLog(out, log), nil
}

func openOutput(c AuditConfig) (io.WriteCloser, error) {
	if c.Path == "-" {
		return duplicate(os.Stdout)
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), folderMode); err != nil {
		return nil, fmt.Errorf("make its folder: %w", err)
	}
	file, err := os.OpenFile(c.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return nil, err
	}
	size := c.MaxSize
	if size == 0 {
		size = math.MaxInt32 // lumberjack's own zero means 100
	}
	return &lumberjack.Logger{Filename: c.Path, MaxSize: size, MaxBackups: c.MaxBackups}, file.Close()
}

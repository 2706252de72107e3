package observe

import (
	"errors"
	"fmt"
	"io"
	"sync"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	logbackend "k8s.io/apiserver/plugin/pkg/audit/log"
)

// AuditLog writes the audit events of answers from memory: lines of JSON, in the format of audit.k8s.io/v1. As with
// kube-apiserver's --audit-log-mode=blocking-strict, no answer is written before its event. AuditLog is safe for concurrent
// use.
type AuditLog struct {
	backend audit.Backend // writes to lines

	mu    sync.Mutex // held while an event is written
	lines *lineWriter
}

var errBusy = errors.New("an event is still being written")

// NewAuditLog returns an audit log that writes to out. The caller must call Close, which also closes out.
func NewAuditLog(out io.WriteCloser) *AuditLog {
	lines := &lineWriter{out: out}
	return &AuditLog{lines: lines, backend: logbackend.NewBackend(lines, logbackend.FormatJson, auditv1.SchemeGroupVersion)}
}

// Write writes the event of an answer from memory. If it returns an error, the answer must not be written.
func (l *AuditLog) Write(event AuditEvent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.lastErr = nil
	if sendAuditEvent(l.backend, event) {
		return nil
	}
	if l.lines.lastErr != nil { // the backend itself returns no error
		return fmt.Errorf("write an audit event: %w", l.lines.lastErr)
	}
	return errors.New("an audit event cannot be encoded")
}

// Close closes the log. It must be called once, after the last answer. If an event is still being written, Close returns an
// error, and leaves the log open. It does not wait for the event, since a disk may hang.
func (l *AuditLog) Close() error {
	if !l.mu.TryLock() {
		return errBusy
	}
	defer l.mu.Unlock()
	return l.lines.out.Close()
}

// lineWriter writes the backend's lines to out, and keeps the error. If only a part of a line was written, as on a full disk, a
// line break comes before the next line.
type lineWriter struct {
	out         io.WriteCloser
	endsMidLine bool  // only a part of the last line was written
	lastErr     error // the error of the last write; nil if it succeeded
}

// Write implements [io.Writer]. The backend calls it with one line at a time.
func (l *lineWriter) Write(line []byte) (int, error) {
	text := line
	if l.endsMidLine {
		text = append([]byte("\n"), line...)
	}
	n, err := l.out.Write(text)
	if n > 0 {
		l.endsMidLine = n < len(text)
	}
	l.lastErr = err
	return min(n, len(line)), err // text may be a byte longer than line, and an [io.Writer] must not return more than len(line)
}

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

// NewAuditLog returns an audit log that writes to out. The log must be closed, which closes out.
func NewAuditLog(out io.WriteCloser) *AuditLog {
	lines := &lineWriter{out: out}
	return &AuditLog{lines: lines, backend: logbackend.NewBackend(lines, logbackend.FormatJson, auditv1.SchemeGroupVersion)}
}

// Write writes the event of an answer from memory. If it returns an error, the answer must not be written.
func (l *AuditLog) Write(event AuditEvent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.lastErr = nil // the backend reports only whether it has succeeded; lines knows why not
	if sendAuditEvent(l.backend, event) {
		return nil
	}
	if l.lines.lastErr != nil {
		return fmt.Errorf("write an audit event: %w", l.lines.lastErr)
	}
	return errors.New("an audit event cannot be encoded") // the backend has written no line
}

// Close closes the log. It must be called once, after the last answer. If an event is still being written, Close returns an
// error and leaves the log open. It does not wait, since a disk may hang.
func (l *AuditLog) Close() error {
	if !l.mu.TryLock() {
		return errBusy
	}
	defer l.mu.Unlock()
	return l.lines.out.Close()
}

// lineWriter writes the backend's lines. If only a part of a line was written, the next line begins with a line break.
type lineWriter struct {
	out     io.WriteCloser
	torn    bool  // only a part of the last line was written
	lastErr error // the error of the last line, which the backend does not return
}

// Write implements [io.Writer]. The backend calls it with one line at a time.
func (l *lineWriter) Write(line []byte) (int, error) {
	text := line
	if l.torn {
		text = append([]byte("\n"), line...)
	}
	n, err := l.out.Write(text)
	if n > 0 { // otherwise the file still ends as before
		l.torn = n < len(text)
	}
	l.lastErr = err
	return min(n, len(line)), err // n may count the line break, too
}

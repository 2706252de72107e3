package observe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/listproxy/listproxy/policy"
)

// AuditLog writes an event of audit.k8s.io/v1, a line of JSON, for every answer from memory before it is given, as
// kube-apiserver's --audit-log-mode=blocking-strict does. It is safe for concurrent use.
type AuditLog struct {
	backend audit.Backend // writes to out

	mu  sync.Mutex // held while an event is written
	out *lineWriter
}

var (
	errBusy   = errors.New("an event is still being written")
	errEncode = errors.New("the event cannot be encoded")
)

// NewAuditLog returns an audit log that writes to out. It must be closed.
func NewAuditLog(out io.WriteCloser) *AuditLog {
	lines := &lineWriter{out: out}
	return &AuditLog{out: lines, backend: auditlog.NewBackend(lines, auditlog.FormatJson, auditv1.SchemeGroupVersion)}
}

// Write writes the event of an answer to r that is about to be given. asked is what r asks for, caller the user who
// sent it, and received the time at which it came. After an error the answer must not be given.
func (l *AuditLog) Write(
	r *http.Request, asked *policy.Request, caller user.Info, received time.Time, answer AuditedAnswer,
) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.lastErr = nil
	if sendAuditEvent(l.backend, r, asked, caller, received, answer) {
		return nil
	}
	if l.out.lastErr != nil {
		return fmt.Errorf("write an audit event: %w", l.out.lastErr)
	}
	return errEncode // the backend wrote nothing
}

// Close closes the log. It is called once, after the last answer. If an event is still being written (a disk may hang),
// Close does not wait for it, and returns an error.
func (l *AuditLog) Close() error {
	if !l.mu.TryLock() {
		return errBusy
	}
	defer l.mu.Unlock()
	return l.out.out.Close()
}

// lineWriter writes the backend's lines. It keeps the error of the last line, since the backend returns none. After a
// line of which only a part was written, the next line begins with a line break.
type lineWriter struct {
	out     io.WriteCloser
	torn    bool // only a part of the last line was written
	lastErr error
}

// Write implements [io.Writer]. The backend calls it with one line at a time.
func (l *lineWriter) Write(line []byte) (int, error) {
	text := line
	if l.torn {
		text = append([]byte("\n"), line...)
	}
	n, err := l.out.Write(text)
	if n > 0 {
		l.torn = n < len(text)
	}
	l.lastErr = err
	return min(n, len(line)), err
}

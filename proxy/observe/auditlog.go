package observe

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	backend audit.Backend
	log     *slog.Logger

	mu      sync.Mutex // held while an event is written
	out     *lines     // where backend writes
	failing bool       // whether the last event could not be written
}

var (
	errBusy   = errors.New("an event is still being written")
	errEncode = errors.New("it cannot be encoded")
)

// NewAuditLog returns an audit log that writes to out. It must be closed.
func NewAuditLog(out io.WriteCloser, log *slog.Logger) *AuditLog {
	l := &AuditLog{out: &lines{out: out}, log: log}
	l.backend = auditlog.NewBackend(l.out, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	return l
}

// Write writes the event of an answer to r that is about to be given. list is the parsed request, who the caller, and
// received the time at which the request came. After an error the answer must not be given.
func (l *AuditLog) Write(r *http.Request, list *policy.Request, who user.Info, received time.Time, answer AuditedAnswer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.failed = nil
	var err error
	if !sendAuditEvent(l.backend, r, list, who, received, answer) {
		err = fmt.Errorf("write an audit event: %w", cmp.Or(l.out.failed, errEncode))
	}
	switch {
	case err != nil && !l.failing:
		l.log.Error("the audit log cannot be written: lists are forwarded until it can", "error", err)
	case err == nil && l.failing:
		l.log.Info("the audit log can be written again")
	}
	l.failing = err != nil
	return err
}

// Close closes the log, or returns an error if an event is still being written. It is called once, after the last
// answer.
func (l *AuditLog) Close() error {
	if !l.mu.TryLock() {
		return errBusy
	}
	defer l.mu.Unlock()
	return l.out.out.Close()
}

// lines writes the backend's lines. It keeps the error of the last line, since the backend returns none. If only a
// part of a line was written, the next one begins on a new line.
type lines struct {
	out    io.WriteCloser
	torn   bool  // only a part of the last line was written
	failed error // the error of the last line
}

// Write implements io.Writer. The backend calls it with one line at a time.
func (l *lines) Write(line []byte) (int, error) {
	text := line
	if l.torn {
		text = append([]byte("\n"), line...)
	}
	n, err := l.out.Write(text)
	if n > 0 {
		l.torn = n < len(text)
	}
	l.failed = err
	return min(n, len(line)), err
}

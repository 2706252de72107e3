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

// Why an event is not in the log.
var (
	errBusy   = errors.New("an event is still being written")
	errEncode = errors.New("it cannot be encoded")
)

// AuditLog writes an event of audit.k8s.io/v1, a line of JSON, for every answer from memory, before it is
// given, as kube-apiserver's --audit-log-mode=blocking-strict does. It is safe for concurrent use.
type AuditLog struct {
	backend audit.Backend
	log     *slog.Logger

	// mu is held while an event is written.
	mu      sync.Mutex
	out     *lines
	failing bool
}

// NewAuditLog returns a log that is written to out. It must be closed in the end.
func NewAuditLog(out io.WriteCloser, log *slog.Logger) *AuditLog {
	l := &AuditLog{out: &lines{out: out}, log: log}
	l.backend = auditlog.NewBackend(l.out, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	return l
}

// Write writes the event of an answer that is about to be given: who is the caller, r the request,
// list the parsed request, and received the time when it came. After an error the answer must not be given.
func (l *AuditLog) Write(r *http.Request, list *policy.Request, who user.Info, received time.Time, a AuditedAnswer) error {
	event := newEvent(r, list, who, received, time.Now(), a)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.failed = nil
	var err error
	if !l.backend.ProcessEvents(event) {
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

// Close closes the log, unless an event is being written. It is called once, when no request is being answered
// any more.
func (l *AuditLog) Close() error {
	if !l.mu.TryLock() {
		return errBusy
	}
	defer l.mu.Unlock()
	return l.out.out.Close()
}

// lines notes why a line could not be written, which the backend tells nobody, and begins a new one
// where only a part of it could.
type lines struct {
	out    io.WriteCloser
	torn   bool
	failed error
}

// Write implements io.Writer. It is called with one line at a time.
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

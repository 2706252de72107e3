package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/listproxy/listproxy/policy"
)

// patience is how long an answer waits for its event to be written.
const patience = time.Second

// Why an event is not in the log.
var (
	errStalled = errors.New("writing to the audit log takes more than a second")
	errClosed  = errors.New("the audit log is closed")
	errEncode  = errors.New("it cannot be encoded")
)

// Log writes an event of audit.k8s.io/v1, a line of JSON, for every answer from memory, before it is
// given.
//
// One goroutine writes, one event after the other. While a write takes longer than an answer waits,
// as when nobody reads standard output, no other answer waits at all. It is safe for concurrent use.
type Log struct {
	out     *lines
	backend audit.Backend
	log     *slog.Logger
	pending chan pending
	closing chan struct{}
	ended   chan struct{} // the last event is written

	began  atomic.Int64 // when the write under way began, in Unix nanoseconds; 0: there is none
	warned atomic.Int64 // began of the write that the log last warned of: it takes too long
}

// pending is an event on its way to the log.
type pending struct {
	event   *auditinternal.Event
	written chan<- error // has room for the result
}

// NewLog returns a log that is written to out. It must be closed in the end.
func NewLog(out io.WriteCloser, log *slog.Logger) *Log {
	l := &Log{
		out: &lines{out: out}, log: log,
		pending: make(chan pending), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	l.backend = auditlog.NewBackend(l.out, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	go l.run()
	return l
}

// Write writes the event of an answer that is about to be given: who is the caller, r the request,
// list the parsed request, and received the time when it came. It waits for a second at most. After
// an error the answer must not be given; an event that was only too late is in the log even so.
func (l *Log) Write(r *http.Request, list policy.Request, who user.Info, received time.Time, a Answer) error {
	if began := l.began.Load(); began != 0 && time.Since(time.Unix(0, began)) >= patience {
		return errStalled
	}
	written := make(chan error, 1)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case l.pending <- pending{event: newEvent(r, list, who, received, time.Now(), a), written: written}:
	case <-l.closing:
		return errClosed
	case <-late.C:
		return errStalled
	}
	select {
	case err := <-written:
		return err
	case <-late.C:
		if began := l.began.Load(); began != 0 && l.warned.Swap(began) != began {
			l.log.Warn("writing to the audit log takes too long: lists are forwarded until it is done")
		}
		return errStalled
	}
}

// run is the writer.
func (l *Log) run() {
	defer close(l.ended)
	failing := false
	for {
		select {
		case p := <-l.pending:
			l.began.Store(time.Now().UnixNano())
			err := l.write(p.event)
			l.began.Store(0)
			switch {
			case err != nil && !failing:
				l.log.Error("the audit log cannot be written: lists are forwarded until it can", "error", err)
			case err == nil && failing:
				l.log.Info("the audit log can be written again")
			}
			failing = err != nil
			p.written <- err
		case <-l.closing:
			return
		}
	}
}

func (l *Log) write(event *auditinternal.Event) error {
	l.out.failed = nil
	if !l.backend.ProcessEvents(event) {
		return fmt.Errorf("write an audit event: %w", cmp.Or(l.out.failed, errEncode))
	}
	return nil
}

// Close waits for the write under way until ctx ends, and closes the log. It is called once, when no
// request is being answered any more.
func (l *Log) Close(ctx context.Context) error {
	close(l.closing)
	select {
	case <-l.ended:
		return l.out.out.Close()
	case <-ctx.Done():
		return errStalled
	}
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

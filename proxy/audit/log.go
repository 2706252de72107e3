package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

const (
	// retryAfter is the time between two attempts to write to a log that could not be written.
	retryAfter = time.Second
	// stallAfter is how long a write may take before the log counts as not writable, and how long an
	// answer waits for its event.
	stallAfter = time.Second
	// maxLine bounds one event, in bytes. Several events fit into the smallest possible file, a
	// megabyte, so no caller can make an event that never fits.
	maxLine = 256 << 10
	// maxHeld bounds the memory, in bytes, for events of lists that are being answered and for events
	// that are not written yet: about four thousand events of usual requests.
	maxHeld = 16 << 20
)

// Why a list may not be answered from memory.
var (
	errFailing = errors.New("the audit log cannot be written")
	errStalled = errors.New("writing to the audit log takes too long")
	errFull    = errors.New("too many events wait to be written to the audit log")
	errLong    = errors.New("the request is too long for an event of the audit log")
	errClosed  = errors.New("the audit log is closed")
)

// Log writes an event of audit.k8s.io/v1, a line of JSON, for every list answered from memory.
//
// No list is answered without an event. [Log.Begin] is called before a list is answered, and
// refuses while the log cannot be written. [Entry.Complete] is called afterwards, and waits until
// the event is written:
//
//	writable ──a write fails, or takes a second──► not writable: Begin refuses, lists are forwarded
//	   ▲                                                 │
//	   └──the same event is written after all────────────┘ tried every second
//
// When a write fails, the events of the answers in progress are kept, in their order, and tried
// again; none is dropped, unless the process ends first. Begin reserves their memory, so it has a
// bound (maxHeld).
//
// One goroutine writes. An answer waits for it at most a second. So a reader of standard output
// that stops reading delays the answers in progress by a second, and no others.
//
// It is safe for concurrent use.
type Log struct {
	out     io.WriteCloser // used by run only
	log     *slog.Logger
	kick    chan struct{} // there is something in queue
	closing chan struct{}
	ended   chan struct{} // run has returned

	mu       sync.Mutex
	queue    []*queuedLine // to be written, oldest first; the first stays until it is written
	reserved int           // bytes set aside
	broken   error         // why the last write failed, nil if it did not
	failed   chan struct{} // closed while broken is set
	began    time.Time     // of the write under way, zero if there is none
	warned   time.Time     // the value of began for which a stall was reported
	closed   bool          // Close was called
}

// queuedLine is an encoded event on its way to the log.
type queuedLine struct {
	rest    []byte // what is not written yet
	size    int    // what was set aside for it
	written chan struct{}
}

// NewLog returns a log that is written to out. It must be closed in the end.
func NewLog(out io.WriteCloser, log *slog.Logger) *Log {
	l := &Log{
		out:     out,
		log:     log,
		kick:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		failed:  make(chan struct{}),
	}
	go l.run()
	return l
}

// readyLocked returns nil if lists may be answered from memory as far as the log is concerned, else
// why not.
func (l *Log) readyLocked() error {
	switch {
	case l.closed:
		return errClosed
	case l.broken != nil:
		return errFailing
	case !l.began.IsZero() && time.Since(l.began) >= stallAfter:
		return errStalled
	}
	return nil
}

// Entry is a list that is being answered from memory. Its methods must not be called
// concurrently.
type Entry struct {
	log   *Log
	event *auditv1.Event // nil once the entry is completed or abandoned
	size  int
}

// Begin announces that a list is going to be answered from memory: who is the caller, r the
// request, list the parsed request, and received the time when it came. An error says why the list
// must not be answered; the entry is then nil. Otherwise the entry must be completed or abandoned.
func (l *Log) Begin(r *http.Request, list policy.Request, who user.Info, received time.Time) (*Entry, error) {
	event := newEvent(r, list, who, received)
	size := sizeOf(event, who, len(r.Header.Get(auditv1.HeaderAuditID)))
	if size > maxLine {
		return nil, errLong
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return nil, err
	}
	if l.reserved+size > maxHeld {
		return nil, errFull
	}
	l.reserved += size
	return &Entry{log: l, event: event, size: size}, nil
}

// Abandon says that the list was not answered from memory after all: there will be no event. After
// Complete it does nothing.
func (e *Entry) Abandon() {
	if e == nil || e.event == nil {
		return
	}
	e.event = nil
	e.log.release(e.size)
}

// Complete writes the event of the list; a describes the answer. It returns when the event is
// written, or cannot be written now, or after a second. In the last two cases Begin refuses lists
// until the event is written.
func (e *Entry) Complete(a Answer) {
	if e == nil || e.event == nil {
		return
	}
	event := e.event
	e.event = nil
	completeEvent(event, a, time.Now())
	line, err := encodeEvent(event)
	if err != nil {
		e.log.release(e.size)
		e.log.log.Error("an answer from memory is missing in the audit log, this is a defect of listproxy",
			"auditID", a.ID, "error", err)
		return
	}
	e.log.append(&queuedLine{rest: line, size: e.size, written: make(chan struct{})}, a.ID)
}

func (l *Log) release(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved -= size
}

// append hands a line to the writer and waits for it.
func (l *Log) append(line *queuedLine, id string) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.log.Error("an answer from memory is missing in the audit log, since it ended after the log was closed", "auditID", id)
		return
	}
	l.queue = append(l.queue, line)
	failed := l.failed
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default: // the writer has been told and has not looked yet
	}

	patience := time.NewTimer(stallAfter)
	defer patience.Stop()
	select {
	case <-line.written:
	case <-failed:
	case <-patience.C:
		l.reportStall()
	}
}

// reportStall logs that the write under way takes too long, once for each write.
func (l *Log) reportStall() {
	l.mu.Lock()
	report := !l.began.IsZero() && l.warned != l.began
	l.warned = l.began
	l.mu.Unlock()
	if report {
		l.log.Warn("writing to the audit log takes too long: lists are forwarded until it is done")
	}
}

// run is the writer.
func (l *Log) run() {
	defer close(l.ended)
	for {
		line := l.oldest()
		if line == nil {
			select {
			case <-l.kick:
				continue
			case <-l.closing:
				// Lines that were handed over before are seen now.
				if l.oldest() == nil {
					return
				}
				continue
			}
		}
		err := l.write(line)
		l.written(line, err)
		if err == nil {
			continue
		}
		select {
		case <-time.After(retryAfter):
		case <-l.closing:
			if err := l.write(line); err != nil {
				return
			}
			l.written(line, nil)
		}
	}
}

// oldest returns the line to be written next, or nil.
func (l *Log) oldest() *queuedLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

// write tries to write what is left of a line.
func (l *Log) write(line *queuedLine) error {
	l.mu.Lock()
	l.began = time.Now()
	l.mu.Unlock()

	n, err := l.out.Write(line.rest)
	line.rest = line.rest[n:]

	l.mu.Lock()
	l.began = time.Time{}
	l.mu.Unlock()
	if len(line.rest) == 0 {
		return nil
	}
	if err == nil {
		err = io.ErrShortWrite
	}
	return err
}

// written records the result of an attempt to write the oldest line.
func (l *Log) written(line *queuedLine, err error) {
	l.mu.Lock()
	was := l.broken
	l.broken = err
	switch {
	case err == nil:
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.reserved -= line.size
		close(line.written)
		if was != nil {
			l.failed = make(chan struct{})
		}
	case was == nil:
		close(l.failed)
	}
	waiting := len(l.queue)
	l.mu.Unlock()

	switch {
	case err != nil && was == nil:
		l.log.Error("the audit log cannot be written: lists are forwarded until it can", "error", err, "waiting", waiting)
	case err == nil && was != nil:
		l.log.Info("the audit log can be written again", "waiting", waiting)
	}
}

// Close writes the events that are still to be written, and closes the log. Call it when no request
// is being answered any more. If ctx ends first, the remaining events are lost; the error says how
// many.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.closing)
	select {
	case <-l.ended:
	case <-ctx.Done():
		return fmt.Errorf("%d events are not in the audit log: %w", l.waiting(), ctx.Err())
	}
	err := l.out.Close()
	if n := l.waiting(); n > 0 {
		return fmt.Errorf("%d events are not in the audit log, which cannot be written", n)
	}
	if err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

// waiting returns how many events are not written yet.
func (l *Log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

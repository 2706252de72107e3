package proxy

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
	// auditRetry is the time between two attempts to write to a log that could not be written.
	auditRetry = time.Second
	// auditStall is how long a write may take before the log counts as one that cannot be written,
	// and how long an answer waits for its event.
	auditStall = time.Second
	// maxAuditLine bounds one event, in bytes: several fit in the smallest file there is, a megabyte,
	// and no caller can make one that never fits.
	maxAuditLine = 256 << 10
	// maxAuditHeld bounds the memory, in bytes, for events of lists that are being answered and for
	// those that are not written yet. With usual requests that is four thousand of them.
	maxAuditHeld = 16 << 20
)

// Why a list may not be answered from memory.
var (
	errAuditFailing = errors.New("the audit log cannot be written")
	errAuditStalled = errors.New("writing to the audit log takes too long")
	errAuditFull    = errors.New("too many events wait to be written to the audit log")
	errAuditLong    = errors.New("the request is too long for an event of the audit log")
	errAuditClosed  = errors.New("the audit log is closed")
)

// AuditLog writes an event of audit.k8s.io/v1, a line of JSON, for every list answered from memory.
//
// Nothing is answered unseen. A list is begun ([AuditLog.Begin]) before it is answered, which is
// refused while the log cannot be written, and completed afterwards, which waits for its event to be
// written:
//
//	writable ──a write fails, or takes a second──► not writable: Begin refuses, lists are forwarded
//	   ▲                                                 │
//	   └──the same event is written after all────────────┘ tried every second
//
// The events of the answers under way when a write fails are kept, in their order, and are what is
// tried; none is dropped, unless the process ends first. Their memory is set aside by Begin, so it
// has a bound (maxAuditHeld).
//
// One goroutine writes. An answer waits for it at most a second, so a reader of standard output that
// does not read on holds up the answers under way by that, and no others.
//
// It is safe for concurrent use.
type AuditLog struct {
	out     io.WriteCloser // used by run only
	log     *slog.Logger
	kick    chan struct{} // there is something in queue
	closing chan struct{}
	ended   chan struct{} // run has returned

	mu     sync.Mutex
	queue  []*auditLine  // to be written, oldest first; the first stays until it is written
	held   int           // bytes set aside
	broken error         // why the last write failed, nil if it did not
	failed chan struct{} // closed while broken is set
	began  time.Time     // of the write under way, zero if there is none
	warned time.Time     // the value of began for which a stall was reported
	closed bool          // Close was called
}

// auditLine is an encoded event on its way to the log.
type auditLine struct {
	rest    []byte // what is not written yet
	size    int    // what was set aside for it
	written chan struct{}
}

func newAuditLog(out io.WriteCloser, log *slog.Logger) *AuditLog {
	l := &AuditLog{
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

// Ready returns nil if lists may be answered from memory as far as the log is concerned, else why
// not.
func (l *AuditLog) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readyLocked()
}

func (l *AuditLog) readyLocked() error {
	switch {
	case l.closed:
		return errAuditClosed
	case l.broken != nil:
		return errAuditFailing
	case !l.began.IsZero() && time.Since(l.began) >= auditStall:
		return errAuditStalled
	}
	return nil
}

// AuditEntry is a list that is being answered from memory. Its methods must not be called
// concurrently.
type AuditEntry struct {
	log   *AuditLog
	event *auditv1.Event // nil once the entry is completed or abandoned
	size  int
}

// Begin announces that a list of who's is going to be answered from memory; r is the request and
// list what it was read as, received the time when it came. An error says why it must not be
// answered, and the entry is then nil. Otherwise the entry has to be completed or abandoned.
func (l *AuditLog) Begin(r *http.Request, list policy.Request, who user.Info, received time.Time) (*AuditEntry, error) {
	event := newAuditEvent(r, list, who, received)
	size := auditSize(event, len(r.Header.Get(auditv1.HeaderAuditID)))
	if size > maxAuditLine {
		return nil, errAuditLong
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return nil, err
	}
	if l.held+size > maxAuditHeld {
		return nil, errAuditFull
	}
	l.held += size
	return &AuditEntry{log: l, event: event, size: size}, nil
}

// Abandon says that the list was not answered from memory after all: there will be no event. After
// Complete it does nothing.
func (e *AuditEntry) Abandon() {
	if e.event == nil {
		return
	}
	e.event = nil
	e.log.release(e.size)
}

// Complete writes the event of the list, which was answered as a says. It returns when the event is
// written, or cannot be written for now, or after a second; in the last two cases no list can be
// begun until it is written.
func (e *AuditEntry) Complete(a AuditedAnswer) {
	if e.event == nil {
		return
	}
	event := e.event
	e.event = nil
	completeAuditEvent(event, a, time.Now())
	line, err := encodeAuditEvent(event)
	if err != nil {
		e.log.release(e.size)
		e.log.log.Error("An answer from memory is missing in the audit log, this is a defect of listproxy",
			"auditID", a.ID, "error", err)
		return
	}
	e.log.append(&auditLine{rest: line, size: e.size, written: make(chan struct{})}, a.ID)
}

func (l *AuditLog) release(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= size
}

// append hands a line to the writer and waits for it.
func (l *AuditLog) append(line *auditLine, id string) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.log.Error("An answer from memory is missing in the audit log, since it ended after the log was closed", "auditID", id)
		return
	}
	l.queue = append(l.queue, line)
	failed := l.failed
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default: // the writer has been told and has not looked yet
	}

	patience := time.NewTimer(auditStall)
	defer patience.Stop()
	select {
	case <-line.written:
	case <-failed:
	case <-patience.C:
		l.reportStall()
	}
}

// reportStall logs that the write under way takes too long, once for each write.
func (l *AuditLog) reportStall() {
	l.mu.Lock()
	report := !l.began.IsZero() && l.warned != l.began
	l.warned = l.began
	l.mu.Unlock()
	if report {
		l.log.Warn("Writing to the audit log takes too long: lists are forwarded until it is done")
	}
}

// run is the writer.
func (l *AuditLog) run() {
	defer close(l.ended)
	for {
		line := l.oldest()
		if line == nil {
			select {
			case <-l.kick:
				continue
			case <-l.closing:
				// What was handed over before is seen now.
				if l.oldest() == nil {
					return
				}
				continue
			}
		}
		err := l.write(line)
		l.settle(line, err)
		if err == nil {
			continue
		}
		select {
		case <-time.After(auditRetry):
		case <-l.closing:
			if err := l.write(line); err != nil {
				return
			}
			l.settle(line, nil)
		}
	}
}

// oldest returns the line to be written next, or nil.
func (l *AuditLog) oldest() *auditLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

// write tries to write what is left of a line.
func (l *AuditLog) write(line *auditLine) error {
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

// settle draws the conclusions from an attempt to write the oldest line.
func (l *AuditLog) settle(line *auditLine, err error) {
	l.mu.Lock()
	was := l.broken
	l.broken = err
	switch {
	case err == nil:
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.held -= line.size
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
		l.log.Error("The audit log cannot be written: lists are forwarded until it can", "error", err, "waiting", waiting)
	case err == nil && was != nil:
		l.log.Info("The audit log can be written again", "waiting", waiting)
	}
}

// Close writes what is still to be written and closes the log. It is to be called when no request is
// being answered any more. The error says how many events are lost; with the end of ctx the log is
// given up.
func (l *AuditLog) Close(ctx context.Context) error {
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
func (l *AuditLog) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	// stallChunk is the number of bytes that must be written within the limit. Pages are written in pieces of at
	// most this size, so that their writes are not split.
	stallChunk = 256 << 10
	// streamEnd is the time that the end of an HTTP/2 stream may take, before its connection is closed.
	streamEnd = time.Second
)

// errStalled is what writing an answer ends with when its client does not read.
var errStalled = errors.New("the client does not read the answer")

// AnswerWriter writes an answer, and ends it if its client does not read it. It is for answers from
// memory, whose objects stay there as long as they last, and for short requests that are forwarded,
// which hold a turn: kube-apiserver ends these after a minute, too (--request-timeout). Forwarded
// streams have no such bound: as at kube-apiserver, a stopped client may go on.
//
// It limits the time of each write and each flush, and splits large writes into pieces of 256 KiB.
// As long as each is done in time, an answer may take any time. Between writes no time is measured,
// so watches may be idle.
//
// How much a client must read in that time also depends on the kernel: Linux wakes a writer only
// when a third of its send buffer is free (sk_stream_is_writeable), which over a good connection is
// a megabyte or more. So the limit should be half a minute or more.
//
// To end an answer, its stream is reset over HTTP/2, so that others on the connection go on. If that
// is stuck itself, or over HTTP/1.1, the connection is closed.
//
// Like other ResponseWriters it is used by one goroutine at a time. It must be finished.
type AnswerWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	limit   time.Duration
	log     *slog.Logger

	mu      sync.Mutex
	writing bool      // something is being written
	since   time.Time // when that began
	stalled bool      // the answer was ended
	// timer runs on when a write has ended: to stop and reset it for each event of a watch would cost
	// more. When it ends, it is set again if there is a write that is younger, and not otherwise: so
	// an idle watch has none.
	timer     *time.Timer
	timerRuns bool
}

// NewAnswerWriter returns what the answer to r is written with. A limit of 0 is none.
func NewAnswerWriter(w http.ResponseWriter, r *http.Request, limit time.Duration, log *slog.Logger) *AnswerWriter {
	return &AnswerWriter{ResponseWriter: w, control: http.NewResponseController(w), request: r, limit: limit, log: log}
}

// Write implements [http.ResponseWriter].
func (a *AnswerWriter) Write(p []byte) (written int, err error) {
	for {
		chunk := p[:min(len(p), stallChunk)]
		n := 0
		err = a.limited(func() (err error) { n, err = a.ResponseWriter.Write(chunk); return err })
		written += n
		if p = p[n:]; err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// FlushError is what [http.ResponseController.Flush] calls.
func (a *AnswerWriter) FlushError() error { return a.limited(a.control.Flush) }

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (a *AnswerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// limited writes, and ends the answer if that takes too long.
func (a *AnswerWriter) limited(write func() error) error {
	if a.limit <= 0 {
		return write()
	}
	if !a.begin() {
		return errStalled
	}
	err := write()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing = false; a.stalled {
		return errors.Join(errStalled, err)
	}
	return err
}

// begin notes that a write begins. It says no if the answer has been ended.
func (a *AnswerWriter) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stalled {
		return false
	}
	a.writing, a.since = true, time.Now()
	switch {
	case a.timerRuns:
	case a.timer == nil:
		a.timer = time.AfterFunc(a.limit, a.expire)
	default:
		a.timer.Reset(a.limit)
	}
	a.timerRuns = true
	return true
}

// expire is the timer's call.
func (a *AnswerWriter) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.limit - time.Since(a.since)
	switch {
	case !a.writing:
		a.timerRuns = false
	case a.stalled: // and the stream has not ended
		if conn, ok := a.request.Context().Value(connectionKey{}).(net.Conn); ok {
			_ = conn.Close()
		}
	case left > 0:
		a.timer.Reset(left)
	default:
		a.stalled = true
		// The handler is in a write, so the ResponseWriter is still in use. For a server's it fails only if
		// the connection is already gone.
		_ = a.control.SetWriteDeadline(time.Unix(1, 0))
		a.timer.Reset(streamEnd)
		a.log.Debug("an answer was ended, because its client does not read it",
			"target", kubehttp.Describe(a.request), "limit", a.limit)
	}
}

// Finish gives the server a limit for sending what is still in its buffers when the handler has
// returned. The server forgets it when it has done that.
func (a *AnswerWriter) Finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // if it has ended already, it finds no write
	}
	if a.limit > 0 && !a.stalled {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.limit))
	}
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

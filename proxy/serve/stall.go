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

// AnswerWriter is an [http.ResponseWriter] that ends an answer whose client does not read it. It is for answers from
// memory, whose objects stay there until the end, and for short requests that are forwarded, which hold a seat:
// kube-apiserver ends these after a minute, too (--request-timeout). It is not for forwarded streams: as at
// kube-apiserver, a client that was stopped for a while may go on reading.
//
// It limits the time of each write and each flush, and splits large writes into chunks of 256 KiB. An answer may take
// any time as long as each chunk is written within the limit. Between writes there is no limit, so watches may be idle.
//
// The number of bytes that a client must read within the limit also depends on the kernel: Linux wakes a writer only
// when a third of its send buffer is free (sk_stream_is_writeable), which over a good connection is a megabyte or more.
// So the limit should be half a minute or more.
//
// To end an answer over HTTP/2, its stream is reset, so that the others on the connection go on. The connection is
// closed if that does not end the stream within a second, or over HTTP/1.1.
//
// Like other ResponseWriters it is used by one goroutine at a time. It must be finished.
type AnswerWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	limit   time.Duration
	log     *slog.Logger

	mu      sync.Mutex
	writing bool      // whether a write has begun and not ended
	begun   time.Time // the time at which it began
	stalled bool      // whether the answer was ended
	// timer is not stopped at the end of a write, since that would cost more for each event of a watch. When it fires
	// during a later write it is set again; when it fires between writes it is not, so an idle watch has none.
	timer        *time.Timer
	timerRunning bool
}

const (
	// stallChunk is the number of bytes that must be written within the limit. Pages are written in pieces of at most
	// this size, so that their writes are not split.
	stallChunk = 256 << 10
	// streamResetTime is the time in which an HTTP/2 stream must end after it was reset, before its connection is
	// closed.
	streamResetTime = time.Second
)

// errStalled is the error of a write whose client does not read.
var errStalled = errors.New("the client does not read the answer")

// NewAnswerWriter returns the writer of the answer to r. A limit of 0 is none.
func NewAnswerWriter(w http.ResponseWriter, r *http.Request, limit time.Duration, log *slog.Logger) *AnswerWriter {
	return &AnswerWriter{ResponseWriter: w, control: http.NewResponseController(w), request: r, limit: limit, log: log}
}

// Write implements [http.ResponseWriter].
func (a *AnswerWriter) Write(p []byte) (written int, err error) {
	for {
		chunk := p[:min(len(p), stallChunk)]
		n := 0
		err = a.writeWithin(func() (err error) { n, err = a.ResponseWriter.Write(chunk); return err })
		written += n
		if p = p[n:]; err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// FlushError is what [http.ResponseController.Flush] calls.
func (a *AnswerWriter) FlushError() error { return a.writeWithin(a.control.Flush) }

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (a *AnswerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// writeWithin calls write, and ends the answer if that takes longer than the limit.
func (a *AnswerWriter) writeWithin(write func() error) error {
	if a.limit <= 0 {
		return write()
	}
	if !a.begin() {
		return errStalled
	}
	err := write()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = false
	if a.stalled {
		return errors.Join(errStalled, err)
	}
	return err
}

// begin notes that a write begins. It returns false if the answer was ended.
func (a *AnswerWriter) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stalled {
		return false
	}
	a.writing = true
	a.begun = time.Now()
	switch {
	case a.timerRunning:
	case a.timer == nil:
		a.timer = time.AfterFunc(a.limit, a.expire)
	default:
		a.timer.Reset(a.limit)
	}
	a.timerRunning = true
	return true
}

// expire is called by the timer. It ends the answer if the current write has taken the limit.
func (a *AnswerWriter) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.limit - time.Since(a.begun)
	switch {
	case !a.writing:
		a.timerRunning = false
	case a.stalled: // but the stream has not ended
		if conn, ok := a.request.Context().Value(connectionKey{}).(net.Conn); ok {
			_ = conn.Close()
		}
	case left > 0:
		a.timer.Reset(left)
	default:
		a.stalled = true
		// The handler is in a write, so the ResponseWriter may still be used. An error means that the connection is
		// gone.
		_ = a.control.SetWriteDeadline(time.Unix(1, 0))
		a.timer.Reset(streamResetTime)
		a.log.Debug("an answer was ended, because its client does not read it",
			"target", kubehttp.Describe(a.request), "limit", a.limit)
	}
}

// Finish sets the limit for the rest of the answer, which the server sends after the handler has returned. The server
// resets it afterwards.
func (a *AnswerWriter) Finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // if it fires just now, no write has begun
	}
	if a.limit > 0 && !a.stalled {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.limit))
	}
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

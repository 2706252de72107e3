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
// closed if that does not end the write within a second, or over HTTP/1.1.
//
// Like other ResponseWriters it is used by one goroutine at a time. Finish must be called when the handler is done.
type AnswerWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	limit   time.Duration
	log     *slog.Logger

	mu      sync.Mutex
	writing bool      // whether a write has begun and not ended
	begun   time.Time // the time at which it began
	stalled bool      // the client does not read: the answer was broken off
	// timer goes on after a write, since stopping it would cost more for each event of a watch. If it fires during a later
	// write, it is set to the end of that write's limit. If it fires between writes, the next write starts it.
	timer        *time.Timer
	timerRunning bool
}

const (
	// stallChunk is the number of bytes that must be written within the limit. Pages are written in pieces of at most
	// this size, so that their writes are not split.
	stallChunk = 256 << 10
	// streamResetTime is the time in which a write must end after its HTTP/2 stream was reset. Otherwise the connection is
	// closed.
	streamResetTime = time.Second
)

// errStalled is the error of a write whose client does not read.
var errStalled = errors.New("the client does not read the answer")

// NewAnswerWriter returns the writer of the answer to r.
func NewAnswerWriter(w http.ResponseWriter, r *http.Request, limit time.Duration, log *slog.Logger) *AnswerWriter {
	return &AnswerWriter{ResponseWriter: w, control: http.NewResponseController(w), request: r, limit: limit, log: log}
}

// Write implements [http.ResponseWriter].
func (a *AnswerWriter) Write(p []byte) (int, error) {
	for written := 0; ; {
		n, err := a.writeChunk(p[:min(len(p), stallChunk)])
		written += n
		if p = p[n:]; err != nil || len(p) == 0 {
			return written, err
		}
	}
}

func (a *AnswerWriter) writeChunk(chunk []byte) (int, error) {
	if !a.startWrite() {
		return 0, errStalled
	}
	n, err := a.ResponseWriter.Write(chunk)
	return n, a.endWrite(err)
}

// FlushError is what [http.ResponseController.Flush] calls.
func (a *AnswerWriter) FlushError() error {
	if !a.startWrite() {
		return errStalled
	}
	return a.endWrite(a.control.Flush())
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (a *AnswerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// startWrite notes that a write begins, which must end within the limit. It returns false if the answer was broken off.
func (a *AnswerWriter) startWrite() bool {
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

// endWrite notes that a write has ended with err, and returns the error for the handler.
func (a *AnswerWriter) endWrite(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = false
	if a.stalled {
		return errors.Join(errStalled, err)
	}
	return err
}

// expire is called by the timer. It breaks the answer off if the current write has taken the limit.
func (a *AnswerWriter) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.writing {
		a.timerRunning = false
		return
	}
	if a.stalled { // the reset has not ended the write
		if conn, ok := a.request.Context().Value(connectionKey{}).(net.Conn); ok {
			_ = conn.Close()
		}
		return
	}
	if left := a.limit - time.Since(a.begun); left > 0 { // the timer was set for an earlier write
		a.timer.Reset(left)
		return
	}
	a.stalled = true
	// A deadline in the past resets the stream over HTTP/2, and ends the write over HTTP/1.1, after which the server closes
	// the connection. The handler is in a write, so the ResponseWriter may still be used. An error means that the connection
	// is gone.
	longAgo := time.Unix(1, 0)
	_ = a.control.SetWriteDeadline(longAgo)
	a.timer.Reset(streamResetTime)
	a.log.Debug("an answer was ended, because its client does not read it",
		"target", kubehttp.Describe(a.request), "limit", a.limit)
}

// Finish limits the time for what the server still has in its buffers, and sends after the handler has returned. The server
// lifts this limit before the next request.
func (a *AnswerWriter) Finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // if it fires just now, no write has begun
	}
	if !a.stalled {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.limit))
	}
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

package serve

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// AnswerWriter is an [http.ResponseWriter] that ends a stalled answer: one whose client does not read it. It is for answers
// that occupy something until their end:
//
//   - An answer from memory keeps its objects in memory.
//   - A short forwarded request counts against --max-requests-inflight. (kube-apiserver, too, ends it after a minute:
//     --request-timeout.)
//
// It is not for forwarded streams: a client that was stopped for a while may go on reading a stream, as at kube-apiserver.
//
// AnswerWriter limits the time of each write and each flush, and splits large writes into chunks of 256 KiB. An answer may
// take any time if each chunk is written within the limit. Between writes there is no limit, so watches may be idle. The limit
// should be half a minute or more: Linux lets a blocked write go on only when a third of the send buffer is free
// (sk_stream_is_writeable). Over a good connection, the client must read a megabyte or more for that.
//
// How an answer is ended depends on the protocol:
//   - HTTP/2: the answer's stream is reset, and other streams on the connection go on. If the reset does not end the write
//     within a second, the connection is closed.
//   - HTTP/1.1: the write ends with an error, and the server closes the connection.
//
// Like other ResponseWriters, an AnswerWriter is used by one goroutine at a time. Finish must be called when the handler is
// done.
type AnswerWriter struct {
	http.ResponseWriter
	control    *http.ResponseController
	request    *http.Request
	writeLimit time.Duration
	log        *slog.Logger

	mu         sync.Mutex // guards the fields below, which the handler and the timer use
	writing    bool       // a write or flush is under way
	writeStart time.Time  // when the current or last write began
	ended      bool       // the answer was ended, since it was stalled
	// timer calls expire. It goes on running after a write, since a watch has many short writes, and stopping it would cost too
	// much.
	timer        *time.Timer // nil before the first write
	timerRunning bool        // the timer will call expire
}

const (
	// maxChunk is the number of bytes that must be written within the limit. The handlers write answers from memory in
	// pieces of at most this size, so their writes are not split.
	maxChunk = 256 << 10
	// streamResetTime is the time for which a write may go on after its HTTP/2 stream was reset. Then the connection is closed.
	streamResetTime = time.Second
)

// errStalled is the error of each write of an answer that was ended.
var errStalled = errors.New("the client does not read the answer")

// NewAnswerWriter returns the writer of the answer to r.
func NewAnswerWriter(w http.ResponseWriter, r *http.Request, writeLimit time.Duration, log *slog.Logger) *AnswerWriter {
	return &AnswerWriter{ResponseWriter: w, control: http.NewResponseController(w), request: r, writeLimit: writeLimit, log: log}
}

// Write implements [http.ResponseWriter]. It writes p in chunks. It also passes on an empty p, since the first Write of a
// handler writes the header.
func (a *AnswerWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		if !a.startWrite() {
			return written, errStalled
		}
		n, err := a.ResponseWriter.Write(p[written:min(len(p), written+maxChunk)])
		err = a.endWrite(err)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
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

// startWrite starts the time limit of a write. It returns false if the answer was ended: then nothing must be written.
func (a *AnswerWriter) startWrite() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.writing = true
	a.writeStart = time.Now()
	if a.timer == nil {
		a.timer = time.AfterFunc(a.writeLimit, a.expire)
	} else if !a.timerRunning {
		a.timer.Reset(a.writeLimit)
	}
	a.timerRunning = true
	return true
}

// endWrite notes that a write has ended. err is the write's error. endWrite returns the error that the handler gets.
func (a *AnswerWriter) endWrite(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = false
	if a.ended {
		return errors.Join(errStalled, err)
	}
	return err
}

// expire is called by the timer. It ends the answer if the current write has taken longer than the limit. The first case that
// holds decides: without a current write nothing is late, and an answer is ended only once.
func (a *AnswerWriter) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.writeLimit - time.Since(a.writeStart)
	switch {
	case !a.writing: // the next write starts the timer again
		a.timerRunning = false
	case a.ended: // the write goes on after the reset of its stream, so the connection is closed
		if conn, ok := a.request.Context().Value(connectionKey{}).(net.Conn); ok {
			_ = conn.Close()
		}
	case left > 0: // the timer was set for an earlier write
		a.timer.Reset(left)
	default:
		a.ended = true
		// A deadline in the past resets the stream over HTTP/2, and ends the write over HTTP/1.1. The handler has not returned
		// from its write, so the ResponseWriter may still be used. An error means that the connection is gone.
		_ = a.control.SetWriteDeadline(time.Unix(1, 0))
		a.timer.Reset(streamResetTime)
		a.log.Debug("an answer was ended, because its client does not read it",
			"target", kubehttp.LoggedTarget(a.request), "limit", a.writeLimit)
	}
}

// Finish stops the timer, and sets a time limit for the rest of the answer, which the server sends from its buffers when the
// handler has returned. The server lifts this limit before the next request on the connection.
func (a *AnswerWriter) Finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // if it fires now, expire does nothing, since no write is under way
	}
	if !a.ended {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.writeLimit))
	}
}

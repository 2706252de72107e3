package server

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// stallChunk is how many bytes must be written within a [StallGuard]'s limit. Pages are written in
// pieces of at most this size, so that their writes are not split.
const stallChunk = 256 << 10

// errStalled is what writing an answer ends with when its client does not read.
var errStalled = errors.New("the client does not read the answer")

// longAgo is a write deadline that has passed.
var longAgo = time.Unix(1, 0)

// StallGuard ends answers that their clients do not read, so that no slow client holds an answer's
// memory, goroutine and turn (proxy/inflight) for long.
//
// It limits the time of each write and each flush, and splits large writes into pieces of 256 KiB.
// As long as each is done in time, an answer may take any time. Between writes no time is measured,
// so watches may be idle. What the server sends after the handler has returned is limited as well.
//
// How much a client must read in that time also depends on the kernel: Linux wakes a writer only
// when a third of its send buffer is free (sk_stream_is_writeable), which over a good connection is
// a megabyte or more. So the limit should be half a minute or more.
//
// To end an answer, the connection is closed over HTTP/1.1. Over HTTP/2 only the stream ends, and
// other streams go on. If the connection itself is stuck, the end of a stream cannot be sent
// either: [http.HTTP2Config]'s WriteByteTimeout is for that.
//
// Upgraded connections are not watched. A StallGuard is safe for concurrent use.
type StallGuard struct {
	limit time.Duration
	log   *slog.Logger
}

// NewStallGuard returns a StallGuard. A limit of 0 is none.
func NewStallGuard(limit time.Duration, log *slog.Logger) *StallGuard {
	return &StallGuard{limit: limit, log: log}
}

// Wrap returns next, guarded.
func (g *StallGuard) Wrap(next http.Handler) http.Handler {
	if g.limit <= 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded := &stallWriter{inner: w, guard: g, request: r}
		defer guarded.finish()
		r, end := guardUpload(w, r, g.limit)
		defer end()
		if hijacker, ok := w.(http.Hijacker); ok {
			next.ServeHTTP(&hijackableStallWriter{guarded, hijacker}, r)
			return
		}
		next.ServeHTTP(guarded, r)
	})
}

// stallWriter is the ResponseWriter of one answer. Like others it is used by one goroutine at a
// time, except that its timer has a goroutine of its own.
//
// It has no ReadFrom, so everything that is copied to it comes by Write.
type stallWriter struct {
	inner   http.ResponseWriter
	guard   *StallGuard
	request *http.Request

	mu sync.Mutex
	// timer runs on when a write has ended: to stop and reset it for each event of a watch would cost
	// more. When it ends, it is set again if there is a write that is younger, and not otherwise: so
	// an idle watch has none.
	timer    *time.Timer
	runs     bool      // timer does
	busy     bool      // inner is writing
	since    time.Time // when it began to
	stalled  bool
	hijacked bool
}

var (
	_ http.Flusher  = (*stallWriter)(nil)
	_ http.Hijacker = (*hijackableStallWriter)(nil)
)

// Header implements [http.ResponseWriter].
func (s *stallWriter) Header() http.Header { return s.inner.Header() }

// WriteHeader implements [http.ResponseWriter].
func (s *stallWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		s.inner.WriteHeader(status) // only remembered
		return
	}
	if s.begin() {
		s.inner.WriteHeader(status)
		_ = s.end(nil) // the next write will see it
	}
}

// Write implements [http.ResponseWriter]. It returns [errStalled] once the
// answer has been ended.
func (s *stallWriter) Write(p []byte) (written int, err error) {
	for {
		chunk := p[:min(len(p), stallChunk)]
		if !s.begin() {
			return written, errStalled
		}
		n, err := s.inner.Write(chunk)
		written += n
		if err := s.end(err); err != nil {
			return written, err
		}
		if p = p[len(chunk):]; len(p) == 0 {
			return written, nil
		}
	}
}

// Flush implements [http.Flusher].
func (s *stallWriter) Flush() {
	_ = s.FlushError() // the next write will see it
}

// FlushError is what [http.ResponseController.Flush] calls.
func (s *stallWriter) FlushError() error {
	if !s.begin() {
		return errStalled
	}
	return s.end(http.NewResponseController(s.inner).Flush())
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (s *stallWriter) Unwrap() http.ResponseWriter { return s.inner }

// begin notes that a write begins. It says no if the answer has been ended.
func (s *stallWriter) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beginLocked()
}

func (s *stallWriter) beginLocked() bool {
	if s.stalled {
		return false
	}
	s.busy, s.since = true, time.Now()
	switch {
	case s.runs:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.guard.limit, s.expire)
	default:
		s.timer.Reset(s.guard.limit)
	}
	s.runs = true
	return true
}

// end notes that a write has ended, itself with err, and returns how.
func (s *stallWriter) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(err)
}

func (s *stallWriter) endLocked(err error) error {
	s.busy = false
	if s.stalled {
		if err == nil {
			return errStalled
		}
		return fmt.Errorf("%w: %w", errStalled, err)
	}
	return err
}

// expire is the timer's call.
func (s *stallWriter) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.guard.limit - time.Since(s.since)
	if s.runs = s.busy && left > 0; s.runs {
		s.timer.Reset(left)
	}
	if !s.busy || left > 0 {
		return
	}
	s.stalled = true
	// The handler is in a write, so the ResponseWriter is still in use. What it
	// waits for ends now: HTTP/1.1's connection does not write any more,
	// HTTP/2's stream is reset.
	s.setDeadline(longAgo)
	s.guard.log.Debug("an answer was ended, because its client does not read it",
		"target", kubehttp.Describe(s.request), "limit", s.guard.limit)
}

// finish gives the server a limit for sending what is still in its buffers when
// the handler has returned, and for reading what the handler has not read. The
// server forgets it when it has done that.
func (s *stallWriter) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop() // if it has ended already, it finds no write
	}
	if s.hijacked {
		return
	}
	end := time.Now().Add(s.guard.limit)
	if !s.stalled {
		s.setDeadline(end)
	}
	if s.request.ProtoMajor == 1 && s.request.ContentLength != 0 {
		// The server reads on to where the next request would begin.
		_ = http.NewResponseController(s.inner).SetReadDeadline(end) // as in setDeadline
	}
}

func (s *stallWriter) setDeadline(t time.Time) {
	// For a server's ResponseWriter it fails only if the connection is already gone.
	_ = http.NewResponseController(s.inner).SetWriteDeadline(t)
}

// hijackableStallWriter is a stallWriter over a connection that can be taken
// over, as HTTP/1.1's can and HTTP/2's cannot.
type hijackableStallWriter struct {
	*stallWriter
	hijacker http.Hijacker
}

// Hijack implements [http.Hijacker]. The server clears the connection's
// deadlines, and from now on they are the hijacker's.
func (h *hijackableStallWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := h.hijacker.Hijack()
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hijacked = true
	}
	return conn, buffered, err
}

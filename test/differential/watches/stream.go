package watches

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// stream is what one side has said to a watch so far. It is safe for concurrent use.
type stream struct {
	status int
	header http.Header
	body   []byte // of an answer that is no stream

	cancel context.CancelFunc
	read   chan struct{} // closed when nothing more is read

	mu     sync.Mutex
	events []oracle.Event
	ended  bool
	err    error // nil, where it ended between two events
}

// open puts a question, and reads on until close. It returns when the header is there, which may
// not wait for an event.
func open(ctx context.Context, side *differential.Side, q differential.Question, patience time.Duration) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	resp, err := side.Open(ctx, q)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{status: resp.StatusCode, header: resp.Header, cancel: cancel, read: make(chan struct{})}
	if s.status != http.StatusOK {
		defer cancel()
		defer close(s.read)
		defer func() { _ = resp.Body.Close() }()
		s.ended = true
		s.body, err = io.ReadAll(resp.Body)
		return s, err
	}
	go s.follow(ctx, resp)
	return s, nil
}

// follow reads events until the end.
func (s *stream) follow(ctx context.Context, resp *http.Response) {
	defer close(s.read)
	defer func() { _ = resp.Body.Close() }()
	var body io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body = events.Unzip(body)
	}
	for in := events.NewReader(body, resp.Header.Get("Content-Type")); ; {
		e, err := next(in)
		s.mu.Lock()
		if err == nil {
			s.events = append(s.events, e)
			s.mu.Unlock()
			continue
		}
		s.ended = true
		if ctx.Err() == nil && !errors.Is(err, io.EOF) {
			s.err = err
		}
		s.mu.Unlock()
		return
	}
}

// said returns what has come, and whether that is all.
func (s *stream) said() (events []oracle.Event, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events), s.ended, s.err
}

// close ends the watch. What was said remains.
func (s *stream) close() {
	s.cancel()
	<-s.read
}

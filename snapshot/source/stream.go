package source

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Stream is a watch that is being read, by one goroutine.
type Stream struct {
	// Events is closed when the stream has ended; Err says how.
	Events <-chan wire.Event
	Err    error
	cancel context.CancelFunc
	lifetime
	// ContentType is the content type of the answer. Compressed reports whether it came with gzip.
	ContentType string
	Compressed  bool
}

// eventsAhead is the number of decoded events that may wait for the reader.
const eventsAhead = 64

// newStream returns a stream of the events in body. ctx is the request's, which cancel ends.
func newStream(ctx context.Context, cancel context.CancelFunc, e wire.Encoding, body io.ReadCloser, l lifetime) *Stream {
	events := make(chan wire.Event, eventsAhead)
	s := &Stream{Events: events, cancel: cancel, lifetime: l}
	go func() {
		defer close(events)
		defer body.Close()
		s.Err = read(ctx, e, body, events)
	}()
	return s
}

// InOrder reports whether a stream that has ended did so at its timeout, and not before. If it
// ended sooner, even without an error, the upstream had a reason: it may have restarted, or been
// replaced.
func (s *Stream) InOrder(now time.Time) bool {
	_, inOrder := s.Ended(now)
	return inOrder && errors.Is(s.Err, wire.ErrEnded) && errors.Is(s.Err, io.EOF)
}

// Stop ends the stream and waits until it is not read any more.
func (s *Stream) Stop() {
	s.cancel()
	for range s.Events {
	}
}

// read decodes events until the stream ends, and returns the error with which it ended.
func read(ctx context.Context, e wire.Encoding, body io.Reader, events chan<- wire.Event) error {
	in := bufio.NewReaderSize(body, 64<<10)
	var record []byte
	for {
		var err error
		if record, err = e.Record(in, record[:0]); err != nil {
			return err
		}
		ev, err := e.Event(record)
		if err != nil {
			return err
		}
		ev.ReadAt = time.Now()
		select {
		case events <- ev:
		case <-ctx.Done():
			return wire.ErrEnded
		}
	}
}

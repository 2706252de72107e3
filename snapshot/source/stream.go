package source

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Stream is a watch that is being read. It is for one goroutine.
type Stream struct {
	// Events has the events of the watch. It is closed when the stream has ended.
	Events <-chan wire.Event
	// Err is the error with which the stream ended. It may be read when Events is closed.
	Err    error
	cancel context.CancelFunc
	lifetime
	// ContentType is the content type of the answer.
	ContentType string
	// Compressed reports whether the answer was compressed with gzip.
	Compressed bool
}

// maxPendingEvents is the number of decoded events that may wait for the reader.
const maxPendingEvents = 64

// newStream returns a stream of the events in body, and closes body when the stream ends. ctx is the context of the
// request, and cancel ends it.
func newStream(ctx context.Context, cancel context.CancelFunc, e wire.Encoding, body io.ReadCloser, l lifetime) *Stream {
	events := make(chan wire.Event, maxPendingEvents)
	s := &Stream{Events: events, cancel: cancel, lifetime: l}
	go func() {
		defer close(events)
		defer body.Close()
		s.Err = read(ctx, e, body, events)
	}()
	return s
}

// InOrder reports whether a stream that has ended did so at its timeout. If it ended before, even without an error, the
// upstream may have restarted, or may have been replaced.
func (s *Stream) InOrder(now time.Time) bool {
	_, inOrder := s.Ended(now)
	return inOrder && errors.Is(s.Err, wire.ErrEnded) && errors.Is(s.Err, io.EOF)
}

// Stop ends the stream, and waits until its body is not read any more.
func (s *Stream) Stop() {
	s.cancel()
	for range s.Events {
	}
}

// read decodes events until body ends or ctx does, and returns the error with which it ended.
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

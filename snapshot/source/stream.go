package source

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Stream is a watch that is being read. Only one goroutine may use it.
type Stream struct {
	// Events yields the events of the watch. It is closed when the stream has ended.
	Events <-chan wire.Event
	// Err is the error with which the stream ended. It may be read when Events is closed.
	Err error
	// ContentType is the content type of the answer.
	ContentType string
	// Compressed reports whether the answer was compressed with gzip.
	Compressed bool

	lifetime                    // when the stream was opened, and its timeout
	cancel   context.CancelFunc // ends the request
}

// maxPendingEvents is the number of decoded events that may wait for the reader.
const maxPendingEvents = 64

// start starts a goroutine that reads the events from the body of the answer, and closes the body when the stream ends. ctx is
// the context of the request.
func (s *Stream) start(ctx context.Context, encoding wire.Encoding, body io.ReadCloser) {
	events := make(chan wire.Event, maxPendingEvents)
	s.Events = events
	go func() {
		defer close(events) // runs last, so that Stop returns only once the body is closed
		defer body.Close()
		s.Err = decodeEvents(ctx, encoding, body, events)
	}()
}

// EndedAtTimeout reports whether the upstream has ended the stream as planned: at its timeout, and between two events. now is
// the time at which the end was noticed. After any other end, even a clean one, the upstream may have restarted, or another
// server may answer from now on.
func (s *Stream) EndedAtTimeout(now time.Time) bool {
	endedBetweenEvents := errors.Is(s.Err, wire.ErrEnded) && errors.Is(s.Err, io.EOF) // see wire.Encoding.ReadRecord
	return s.reachedTimeout(now) && endedBetweenEvents
}

// Stop ends the stream, and blocks until its body is closed.
func (s *Stream) Stop() {
	s.cancel()
	for range s.Events {
	}
}

// decodeEvents decodes the events in body and sends them to events, until body or ctx ends. It returns the cause, which is
// never nil.
func decodeEvents(ctx context.Context, encoding wire.Encoding, body io.Reader, events chan<- wire.Event) error {
	in := bufio.NewReaderSize(body, 64<<10)
	var record []byte // Its memory is used again: ParseEvent copies what it keeps.
	for {
		var err error
		if record, err = encoding.ReadRecord(in, record[:0]); err != nil {
			return err
		}
		ev, err := wire.ParseEvent(encoding, record)
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

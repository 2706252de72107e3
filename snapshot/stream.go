package snapshot

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// eventsAhead is how many decoded events may wait for the feed.
const eventsAhead = 64

// stream is a watch that is being read.
type stream struct {
	// events is closed when the stream has ended; err says how.
	events chan wire.Event
	err    error
	cancel context.CancelFunc
	clock.Lifetime
	// from is the revision that the stream begins after.
	from uint64
	// contentType is that of the answer, and compressed whether it came with gzip.
	contentType string
	compressed  bool
	// gone has objects that the stream has sent, but that the state which opened the span does not
	// have. That state was loaded later, so the stream must send their deletion before it sends
	// anything later. Only the feed uses it.
	gone map[string]struct{}
}

func newStream(ctx context.Context, cancel context.CancelFunc, e wire.Encoding, body io.ReadCloser, l clock.Lifetime) *stream {
	s := &stream{events: make(chan wire.Event, eventsAhead), cancel: cancel, Lifetime: l}
	go func() {
		defer close(s.events)
		defer body.Close()
		s.err = s.read(ctx, e, body)
	}()
	return s
}

// inOrder reports whether a stream that has ended did so at its timeout, and not before. If it
// ended sooner, even without an error, the upstream had a reason: it may have restarted, or been
// replaced.
func (s *stream) inOrder(now time.Time) bool {
	_, inOrder := s.Ended(now)
	return inOrder && errors.Is(s.err, wire.ErrEnded) && errors.Is(s.err, io.EOF)
}

// stop ends the stream and waits until it is not read any more.
func (s *stream) stop() {
	s.cancel()
	for range s.events {
	}
}

func (s *stream) read(ctx context.Context, e wire.Encoding, body io.Reader) error {
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
		ev.Came = time.Now()
		select {
		case s.events <- ev:
		case <-ctx.Done():
			return wire.ErrEnded
		}
	}
}

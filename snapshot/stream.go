package snapshot

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"
)

const (
	// maxEvent bounds one event. etcd takes requests of 1.5 MiB by default and JSON may be a
	// few times longer than what is stored.
	maxEvent = 64 << 20
	// eventsAhead is how many decoded events may wait for the feed.
	eventsAhead = 64
)

// stream is a watch that is being read.
type stream struct {
	// events is closed when the stream has ended; err says how.
	events chan event
	err    error
	cancel context.CancelFunc
	// timeout is how long the upstream was asked to keep the stream, and begun is when.
	timeout time.Duration
	begun   time.Time
	// from is the revision that the stream begins after.
	from uint64
}

// errEnded is a stream that ended as streams do: at its timeout, or cut.
var errEnded = errors.New("the watch ended")

func newStream(ctx context.Context, cancel context.CancelFunc, e encoding, body io.ReadCloser, begun time.Time, timeout time.Duration) *stream {
	s := &stream{events: make(chan event, eventsAhead), cancel: cancel, begun: begun, timeout: timeout}
	go func() {
		defer close(s.events)
		defer body.Close()
		s.err = s.read(ctx, e, body)
	}()
	return s
}

// due is when the upstream ends the stream, or a little later: it counts from when it was asked.
func (s *stream) due() time.Time { return s.begun.Add(s.timeout) }

// inOrder reports whether a stream that has ended did so at its timeout, and not before. One that is ended
// sooner, however well, ended for a reason of the upstream's: it may have restarted, or be another one now.
func (s *stream) inOrder(now time.Time) bool {
	const early = time.Second // two clocks
	return errors.Is(s.err, errEnded) && errors.Is(s.err, io.EOF) && now.Sub(s.begun) >= s.timeout-early
}

// stop ends the stream and waits until it is not read any more.
func (s *stream) stop() {
	s.cancel()
	for range s.events {
	}
}

func (s *stream) read(ctx context.Context, e encoding, body io.Reader) error {
	in := bufio.NewReaderSize(body, 64<<10)
	var record []byte
	for {
		var err error
		if record, err = e.record(in, record[:0]); err != nil {
			return err
		}
		ev, err := e.event(record)
		if err != nil {
			return err
		}
		select {
		case s.events <- ev:
		case <-ctx.Done():
			return errEnded
		}
	}
}

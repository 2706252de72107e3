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
	lifetime
	// from is the revision that the stream begins after.
	from uint64
}

// lifetime is how long the upstream was asked to keep a watch.
type lifetime struct {
	// asked is when the request was sent, answered when its header came. The upstream begins to count
	// between the two: a request may wait in a queue of the upstream before that.
	asked, answered time.Time
	timeout         time.Duration
}

// due is when the upstream has ended the watch at the latest.
func (l lifetime) due() time.Time { return l.answered.Add(l.timeout) }

// over reports whether the watch may have come to its timeout.
func (l lifetime) over(now time.Time) bool {
	const early = time.Second // two clocks
	return now.Sub(l.asked) >= l.timeout-early
}

// errEnded is a stream that ended as streams do: at its timeout, or cut.
var errEnded = errors.New("the watch ended")

func newStream(ctx context.Context, cancel context.CancelFunc, e encoding, body io.ReadCloser, l lifetime) *stream {
	s := &stream{events: make(chan event, eventsAhead), cancel: cancel, lifetime: l}
	go func() {
		defer close(s.events)
		defer body.Close()
		s.err = s.read(ctx, e, body)
	}()
	return s
}

// inOrder reports whether a stream that has ended did so at its timeout, and not before. One that is ended
// sooner, however well, ended for a reason of the upstream's: it may have restarted, or be another one now.
func (s *stream) inOrder(now time.Time) bool {
	return errors.Is(s.err, errEnded) && errors.Is(s.err, io.EOF) && s.over(now)
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

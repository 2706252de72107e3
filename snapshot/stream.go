package snapshot

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// maxEvent bounds one event. etcd takes requests of 1.5 MiB by default and JSON may be a
	// few times longer than what is stored.
	maxEvent = 64 << 20
	// eventsAhead is how many decoded events may wait for the feed.
	eventsAhead = 64
)

// event is one line of a watch.
type event struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK
	meta   objectMeta
	object []byte // as received
}

// stream is a watch that is being read.
type stream struct {
	// events is closed when the stream has ended; err says how.
	events chan event
	err    error
	cancel context.CancelFunc
	// timeout is how long the upstream was asked to keep the stream.
	timeout time.Duration
	// from is the revision that the stream begins after.
	from uint64
}

// errEnded is a stream that ended as streams do: at its timeout, or cut.
var errEnded = errors.New("the watch ended")

func newStream(ctx context.Context, cancel context.CancelFunc, body io.ReadCloser, timeout time.Duration) *stream {
	s := &stream{events: make(chan event, eventsAhead), cancel: cancel, timeout: timeout}
	go func() {
		defer close(s.events)
		defer body.Close()
		s.err = s.read(ctx, body)
	}()
	return s
}

// stop ends the stream and waits until it is not read any more.
func (s *stream) stop() {
	s.cancel()
	for range s.events {
	}
}

func (s *stream) read(ctx context.Context, body io.Reader) error {
	in := bufio.NewReaderSize(body, 64<<10)
	var line []byte
	for {
		var err error
		line, err = readLine(in, line[:0])
		if err != nil {
			// What came of a line that was cut is no event, and no garbage either.
			return err
		}
		ev, err := decodeEvent(line)
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

// readLine reads up to a newline, into buf.
func readLine(in *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		buf = append(buf, part...)
		if err == nil {
			return buf, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF && len(buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return buf, fmt.Errorf("%w: %w", errEnded, err)
		}
		if len(buf) > maxEvent {
			return buf, poison("an event of more than %d bytes", maxEvent)
		}
	}
}

// decodeEvent takes a line of a watch apart. A complete line that is no event is poison; an
// ERROR event becomes an answerError.
func decodeEvent(line []byte) (event, error) {
	if !json.Valid(line) {
		return event{}, poison("an event is not valid JSON")
	}
	var ev event
	err := fields(line, func(key string, value []byte) (err error) {
		switch {
		case key == "type" && ev.kind == "":
			ev.kind, err = unquote(value)
		case key == "object" && ev.object == nil:
			ev.object = value
		default:
			err = fmt.Errorf("%w: an event with a member %q", errShape, key)
		}
		return err
	})
	if err == nil {
		ev.meta, err = parseMeta(ev.object)
	}
	if err != nil {
		return event{}, poison("an event cannot be decoded: %v", err)
	}
	switch ev.kind {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
	case "ERROR":
		return event{}, errorEvent(ev)
	default:
		return event{}, poison("an event of type %q", ev.kind)
	}
	if ev.meta.revision == 0 {
		return event{}, poison("an event without resourceVersion")
	}
	// The line's memory is used again for the next.
	ev.object = append([]byte(nil), ev.object...)
	return ev, nil
}

// errorEvent is the upstream's own word for why the stream ends.
func errorEvent(ev event) error {
	answer := &answerError{code: ev.meta.code}
	if answer.code == 0 {
		answer.code = http.StatusInternalServerError
	}
	var status struct {
		Reason, Message string
	}
	if json.Unmarshal(ev.object, &status) == nil {
		answer.message = status.Message
	}
	return fmt.Errorf("the watch ended with an error: %w", answer)
}

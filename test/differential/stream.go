package differential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// stream is the answer of one side to a watch, with the events that have been read so far. It is safe for concurrent use.
type stream struct {
	ask.Answer // with a body only if its status is not 200

	cancel context.CancelFunc
	done   chan struct{} // closed when nothing more is read

	mu       sync.Mutex // guards progress
	progress progress
}

// progress is what a stream has received so far.
type progress struct {
	events   []oracle.Event
	hasEnded bool
	err      error // nil if the stream ended between two events, or by close
}

// openStream sends a watch and returns when the header of the answer has come. A server must not hold back the header until the
// first event, so openStream fails after watchPatience. The stream then reads events until the watch ends or close is called.
func openStream(ctx context.Context, side *side, q question) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(watchPatience, cancel)
	defer timeout.Stop()
	resp, err := side.clientOf(q).Open(ctx, http.MethodGet, q.target(), nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", side.name, err)
	}
	s := &stream{Answer: ask.Answer{Code: resp.StatusCode, Header: resp.Header}, cancel: cancel, done: make(chan struct{})}
	if s.Code != http.StatusOK { // a refusal is read at once, and nothing follows
		defer cancel()
		defer close(s.done)
		defer func() { _ = resp.Body.Close() }()
		s.progress.hasEnded = true
		s.Body, err = io.ReadAll(resp.Body)
		return s, err
	}
	go s.follow(ctx, resp)
	return s, nil
}

// follow reads events until the end.
func (s *stream) follow(ctx context.Context, resp *http.Response) {
	defer close(s.done)
	defer func() { _ = resp.Body.Close() }()
	in := events.NewReader(resp.Body, resp.Header.Get("Content-Type"))
	for s.readEvent(ctx, in) {
	}
}

// readEvent reads one event and adds it. It returns false at the end.
func (s *stream) readEvent(ctx context.Context, in *events.Reader) bool {
	e, err := nextEvent(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.progress.events = append(s.progress.events, e)
		return true
	}
	s.progress.hasEnded = true
	if ctx.Err() == nil && !errors.Is(err, io.EOF) {
		s.progress.err = err
	}
	return false
}

// soFar returns a copy of the stream's progress.
func (s *stream) soFar() progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return progress{events: slices.Clone(s.progress.events), hasEnded: s.progress.hasEnded, err: s.progress.err}
}

// close ends the watch. The events remain.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// nextEvent reads one event. A frame with other bytes than kube-apiserver's frame of the same event is an error.
func nextEvent(in *events.Reader) (oracle.Event, error) {
	raw, err := in.Next()
	e := oracle.Event{Type: raw.Type, Object: raw.Object, Key: keyOf(&raw.Meta), Revision: raw.Revision, EndsInitial: raw.EndsInitial}
	if err == nil && !bytes.Equal(raw.Frame, frameOf(e)) {
		err = fmt.Errorf("not a frame as kube-apiserver writes it: %q", raw.Frame)
	}
	return e, err
}

// keyOf returns the key by which initial events are ordered.
func keyOf(o *metav1.ObjectMeta) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// magic is the prefix of an object in Kubernetes' protobuf.
var magic = []byte("k8s\x00")

// frameOf returns the frame of an event, as kube-apiserver writes it.
func frameOf(e oracle.Event) []byte {
	if !bytes.HasPrefix(e.Object, magic) {
		return []byte(`{"type":"` + string(e.Type) + `","object":` + string(e.Object) + "}\n")
	}
	return events.ProtobufFrame(e.Type, e.Object)
}

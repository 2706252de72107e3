package proxy

import (
	"bytes"
	stdgzip "compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
)

// client is the sender of one request, and records its answer.
type client struct {
	*httptest.ResponseRecorder

	// A test may set these fields before openAs.
	encoding  string        // the request's Accept-Encoding
	readDelay time.Duration // until the client reads the first bytes

	// openAs sets these fields.
	world *modelWorld
	begun time.Time
	leave context.CancelFunc
	// done gets the duration of the request when it ends.
	done chan time.Duration
	// why is the reason to forward the request, or None.
	why reason.Reason
	// duration is what awaitEnd has received from done.
	duration time.Duration

	mu sync.Mutex // guards ResponseRecorder and readDelay
}

// Write implements io.Writer.
func (c *client) Write(p []byte) (int, error) {
	time.Sleep(c.readDelay)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readDelay = 0
	return c.ResponseRecorder.Write(p)
}

// received returns the body that has come so far, decompressed. A compressed body must be in whole members.
func (c *client) received(t *testing.T) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return plain(t, c.ResponseRecorder)
}

// events returns the number of events that have come so far.
func (c *client) events(t *testing.T) int {
	t.Helper()
	return strings.Count(c.received(t), "\n")
}

// plain returns the body that was written, decompressed. A compressed body must be in whole members.
func plain(t *testing.T, out *httptest.ResponseRecorder) string {
	t.Helper()
	if out.Header().Get("Content-Encoding") != "gzip" {
		return out.Body.String()
	}
	read, err := stdgzip.NewReader(bytes.NewReader(out.Body.Bytes()))
	expect.NoError(t, err)
	text, err := io.ReadAll(read)
	if err != nil {
		t.Errorf("got a body that is not in whole gzip members: %v", err)
	}
	return string(text)
}

// open sends a request of a new client, which leaves when the test ends.
func (w *modelWorld) open(t *testing.T, query string) *client {
	t.Helper()
	c := &client{}
	w.openAs(t, c, query)
	return c
}

// openAs sends a request of c, whose encoding and readDelay may be set.
func (w *modelWorld) openAs(t *testing.T, c *client, query string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	c.ResponseRecorder = httptest.NewRecorder()
	c.world = w
	c.begun = time.Now()
	c.leave = leave
	c.done = make(chan time.Duration, 1)
	r := withCaller(w.request(ctx, query), w.newCaller(t))
	r.Header.Set("Accept-Encoding", c.encoding)
	handler := w.handler.Observer.Observe(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		found, why := w.handler.decide(r)
		if why != reason.None {
			c.why = why
			return
		}
		stream, why := w.handler.answerFromMemory(out, r, found)
		c.why = why
		if stream != nil {
			stream.serve()
		}
	}), w.handler.Log)
	go func() {
		handler.ServeHTTP(c, r)
		c.done <- time.Since(c.begun)
	}()
	synctest.Wait()
}

// awaitEnd waits until the watch ends, or until it is as old as maxAge. It returns the ending that was counted, or watchGoesOn
// if the watch has not ended.
func (c *client) awaitEnd(t *testing.T, maxAge time.Duration) watch.Ending {
	t.Helper()
	select {
	case c.duration = <-c.done:
	case <-time.After(maxAge - time.Since(c.begun)):
		synctest.Wait() // until all that was sent is written
		return watchGoesOn
	}
	if c.why != reason.None {
		t.Fatalf("got the reason %s to forward, want an answer from memory", c.why)
	}
	return c.world.countedEnding(t)
}

// countedEnding returns the ending of the only watch that has ended. The collection, which has the counts, may have to be
// loaded again first.
func (w *modelWorld) countedEnding(t *testing.T) watch.Ending {
	t.Helper()
	for range 10 { // at most 200 s
		if _, why := w.handler.Collections.Use(modelWidgets); why == reason.None {
			break
		}
		time.Sleep(20 * time.Second)
	}
	for _, collection := range w.handler.Collections.Stats() {
		for ending := range collection.Watches.Ended {
			return ending
		}
	}
	t.Fatal("the watch has ended, but no ending was counted")
	return ""
}

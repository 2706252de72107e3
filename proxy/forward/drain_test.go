package forward

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const aWatch = "/api/v1/pods?watch=true"

// shutDown shuts the server of d down, and says in words what happened to its requests.
func shutDown(d *serve.Drain, timeout time.Duration) string {
	cut, clean := d.Shutdown(timeout)
	return fmt.Sprintf("%d requests were cut, clean: %t", cut, clean)
}

// TestDrain: when listproxy's server shuts down, open watches end at once, after a whole event. A watch without an answer gets
// a 503. Short requests go on to their end. New connections are not accepted.
func TestDrain(t *testing.T) { forEachProtocolInBubble(t, testDrain) }

func testDrain(t *testing.T, over protocols) {
	const event = `{"type":"BOOKMARK"}` + "\n"
	arrived := make(chan string, 3) // the requests that the upstream gets
	ended := make(chan string, 2)   // those of them whose end the upstream notices
	front, drain := startProxyInBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- r.URL.Path
		if r.Method == http.MethodPost {
			_, _ = io.Copy(w, r.Body)
			return
		}
		<-r.Context().Done()
		ended <- r.URL.Path
	}, over)
	send := func(method, path string, body io.Reader) (answer chan *http.Response) {
		answer = make(chan *http.Response, 1)
		r, err := http.NewRequestWithContext(t.Context(), method, front.URL+path, body)
		expect.NoError(t, err)
		go func() {
			res, _ := front.Client().Do(r)
			answer <- res
		}()
		return answer
	}
	read := func(answer chan *http.Response) (*http.Response, string) {
		t.Helper()
		res := <-answer
		if res == nil {
			t.Fatal("no answer")
		}
		defer func() { _ = res.Body.Close() }()
		return res, proxytest.ReadAll(t, res.Body)
	}
	// Three requests are open: a watch without an answer, a watch with an event, and a write.
	silent := send(http.MethodGet, "/api/v1/nodes?watch=true", nil)
	watch := send(http.MethodGet, aWatch, nil)
	body, uploading := io.Pipe()
	written := send(http.MethodPost, "/api/v1/namespaces/a/pods", body)
	_, _ = io.WriteString(uploading, "slow ")
	for range cap(arrived) {
		<-arrived
	}

	// The server shuts down: the watches end, but not the write.
	drained := make(chan string, 1)
	go func() { drained <- shutDown(drain, time.Minute) }()
	_, events := read(watch) // a stream that breaks off would be an error
	expect.Same(t, event, events)
	res, _ := read(silent)
	expect.Same(t, http.StatusServiceUnavailable, res.StatusCode)
	expect.Same(t, "1", res.Header.Get("Retry-After"))
	for range cap(ended) { // both watches have ended at the upstream, too
		<-ended
	}
	select {
	case res := <-written:
		t.Fatalf("got the answer %v to the write, want none yet", res)
	case got := <-drained:
		t.Fatalf("the shutdown did not wait for the write: %s", got)
	default:
	}
	// The write is completed and answered. Then the shutdown is over.
	_, _ = io.WriteString(uploading, "but sure")
	_ = uploading.Close()
	res, echo := read(written)
	expect.Same(t, http.StatusOK, res.StatusCode)
	expect.Same(t, "slow but sure", echo)
	expect.Same(t, "0 requests were cut, clean: true", <-drained)
	if res, err := front.Client().Get(front.URL); err == nil {
		_ = res.Body.Close()
		t.Errorf("new connections are accepted: %s", res.Status)
	}
}

// TestDrainCuts: when the timeout of a shutdown is over, the connections of open requests are closed, and the requests are
// counted. That includes upgraded connections, for which net/http's Shutdown would not wait.
func TestDrainCuts(t *testing.T) {
	ended := make(chan struct{}, 2) // gets a value when a request ends at the upstream
	exec := proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.ReadByte()
		ended <- struct{}{}
	})
	forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/exec" {
			exec(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- struct{}{}
	}).Config())
	server, drain := newDrainableServer(forwarder)
	front := proxytest.Serve(t, server, proxytest.HTTP1)
	_, _, upgraded := proxytest.SendRaw(t, front, websocketUpgrade.text)
	log := proxytest.Get(t, front.Client(), front.URL+"/api/v1/namespaces/a/pods/b/log?follow=true")
	expect.Same(t, "2 requests were cut, clean: false", shutDown(drain, time.Millisecond))
	if rest, err := io.ReadAll(upgraded); len(rest) > 0 {
		t.Errorf("the upgraded connection has %q and ends with %v, want nothing", rest, err)
	}
	if _, err := io.ReadAll(log.Body); err == nil {
		t.Error("the log that was cut ends without an error")
	}
	for range cap(ended) {
		<-ended
	}
}

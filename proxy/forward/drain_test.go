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

// endOf is how a server ended.
func endOf(d *serve.Drain, timeout time.Duration) string {
	cut, clean := d.End(timeout)
	return fmt.Sprintf("%d requests were cut, clean: %t", cut, clean)
}

// TestDrain: watches end at once and in order, also one that has no answer yet; what takes its time
// goes on to its end.
func TestDrain(t *testing.T) { inBubbles(t, testDrain) }

func testDrain(t *testing.T, over protocols) {
	const event = `{"type":"BOOKMARK"}` + "\n"
	come, gone := make(chan string, 3), make(chan string, 2)
	front, drain := startInPipes(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
		come <- r.URL.Path
		if r.Method == http.MethodPost {
			_, _ = io.Copy(w, r.Body)
			return
		}
		<-r.Context().Done()
		gone <- r.URL.Path
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
	silent := send(http.MethodGet, "/api/v1/nodes?watch=true", nil)
	watch := send(http.MethodGet, aWatch, nil)
	body, uploading := io.Pipe()
	written := send(http.MethodPost, "/api/v1/namespaces/a/pods", body)
	_, _ = io.WriteString(uploading, "slow ")
	for range cap(come) {
		<-come
	}

	ended := make(chan string, 1)
	go func() { ended <- endOf(drain, time.Minute) }()
	if _, events := read(watch); events != event { // an error is one that does not end in order
		t.Errorf("the watch read %q", events)
	}
	if res, _ := read(silent); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Errorf("a watch without an answer got %s, %v", res.Status, res.Header)
	}
	for range cap(gone) {
		<-gone // the upstream has heard of it
	}
	select {
	case res := <-written:
		t.Fatalf("the write has an answer: %v", res)
	case got := <-ended:
		t.Fatalf("the end did not wait for the write: %s", got)
	default:
	}
	_, _ = io.WriteString(uploading, "but sure")
	_ = uploading.Close()
	if res, got := read(written); res.StatusCode != http.StatusOK || got != "slow but sure" {
		t.Errorf("the write got %s, %q", res.Status, got)
	}
	expect.Same(t, "0 requests were cut, clean: true", <-ended)
	if res, err := front.Client().Get(front.URL); err == nil {
		_ = res.Body.Close()
		t.Errorf("new connections are accepted: %s", res.Status)
	}
}

// TestDrainCuts: when the time is over, what still goes on is cut, and counted: an upgraded connection, for which
// net/http's Shutdown would not wait, and a request.
func TestDrainCuts(t *testing.T) {
	gone := make(chan struct{}, 2)
	exec := proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.ReadByte()
		gone <- struct{}{}
	})
	forwarder := newForwarder(t, proxytest.StartUpstream(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/exec" {
			exec(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}).Config())
	server, drain := newDraining(forwarder)
	front := proxytest.Serve(t, server, false)
	_, _, upgraded := proxytest.SendRaw(t, front, upgradeProtocols["websocket"])
	log := proxytest.Get(t, front.Client(), front.URL+"/api/v1/namespaces/a/pods/b/log?follow=true")
	expect.Same(t, "2 requests were cut, clean: false", endOf(drain, time.Millisecond))
	if rest, err := io.ReadAll(upgraded); len(rest) > 0 {
		t.Errorf("read %q, %v", rest, err)
	}
	if _, err := io.ReadAll(log.Body); err == nil {
		t.Error("an answer that was cut seems whole")
	}
	for range cap(gone) {
		<-gone
	}
}

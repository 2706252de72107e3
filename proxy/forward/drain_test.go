package forward

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const aWatch = "/api/v1/pods?watch=true"

// drained is what [serve.Drain.End] returns.
type drained struct {
	Cut   int64
	Clean bool
}

func endOf(d *serve.Drain, timeout time.Duration) drained {
	cut, clean := d.End(timeout)
	return drained{cut, clean}
}

// startDraining serves as startProxy does, with a Drain; ending gets within what time the watches
// are to end, when that has begun.
func startDraining(t *testing.T, forward known) (_ *httptest.Server, _ *serve.Drain, ending chan time.Duration) {
	t.Helper()
	front, drain, ending := newDraining(forward, false)
	front.StartTLS()
	t.Cleanup(front.Close)
	return front, drain, ending
}

// newDraining returns what startDraining serves.
func newDraining(forward known, http2 bool) (front *httptest.Server, drain *serve.Drain, ending chan time.Duration) {
	log := slog.New(slog.DiscardHandler)
	ending = make(chan time.Duration, 1)
	front = httptest.NewUnstartedServer(nil)
	front.Config = serve.New(serve.OnlyPaths(forward), nil, log)
	drain = serve.NewDrain(front.Config, func(within time.Duration) {
		forward.EndWatches(func(int) (after, spread time.Duration) { return 0, max(1, within) })
		ending <- within
	})
	drain.LastFlush *= 4 // the machine may be busy elsewhere
	front.EnableHTTP2 = http2
	return front, drain, ending
}

// drainingInPipes is startDraining in a bubble, before an upstream that is not started yet.
func drainingInPipes(t *testing.T, upstream *httptest.Server, up, down bool) (*httptest.Server, *serve.Drain) {
	t.Helper()
	upstream.EnableHTTP2 = up
	network := proxytest.StartInPipes(t, upstream)
	config := proxytest.UpstreamServer{Server: upstream}.Config()
	config.Dial = network.Dial
	front, drain, _ := newDraining(newForwarder(t, config), down)
	proxytest.StartInPipes(t, front)
	return front, drain
}

// TestDrain: watches end at once and in order, also one that has no answer yet; what takes its time
// goes on to its end.
func TestDrain(t *testing.T) { inBubbles(t, testDrain) }

func testDrain(t *testing.T, up, down bool) {
	const event = `{"type":"BOOKMARK"}` + "\n"
	come, gone := make(chan string, 3), make(chan string, 2)
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			first := make([]byte, 5)
			_, _ = io.ReadFull(r.Body, first)
			come <- "write"
			rest, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(first)
			_, _ = w.Write(rest)
			return
		case r.URL.Path == "/api/v1/pods":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
		come <- r.URL.Path
		<-r.Context().Done()
		gone <- r.URL.Path
	}))
	front, drain := drainingInPipes(t, upstream, up, down)

	silent := make(chan *http.Response, 1)
	go func() {
		res, _ := front.Client().Get(front.URL + "/api/v1/nodes?watch=true")
		silent <- res
	}()
	watch := proxytest.Get(t, front.Client(), front.URL+aWatch)
	events := bufio.NewReader(watch.Body)
	if line, err := events.ReadString('\n'); line != event {
		t.Fatalf("read %q, %v", line, err)
	}
	body, uploading := io.Pipe()
	written := make(chan *http.Response, 1)
	go func() {
		res, _ := front.Client().Post(front.URL+"/api/v1/namespaces/a/pods", "application/json", body)
		written <- res
	}()
	_, _ = io.WriteString(uploading, "slow ")
	for range cap(come) {
		<-come
	}

	end := make(chan drained, 1)
	go func() { end <- endOf(drain, time.Minute) }()
	if rest := proxytest.ReadAll(t, events); rest != "" { // an error is one that does not end in order
		t.Errorf("read %q at the end", rest)
	}
	refused := <-silent
	if refused == nil {
		t.Fatal("a watch without an answer got none")
	}
	defer func() { _ = refused.Body.Close() }()
	if refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") != "1" {
		t.Errorf("a watch without an answer got %s, %v", refused.Status, refused.Header)
	}
	for range cap(gone) {
		<-gone // the upstream has heard of it
	}
	select {
	case res := <-written:
		t.Fatalf("the write has an answer: %v", res)
	case got := <-end:
		t.Fatalf("the end did not wait for the write: %+v", got)
	default:
	}
	_, _ = io.WriteString(uploading, "but sure")
	_ = uploading.Close()
	res := <-written
	if res == nil {
		t.Fatal("the write got no answer")
	}
	defer func() { _ = res.Body.Close() }()
	if got := proxytest.ReadAll(t, res.Body); res.StatusCode != http.StatusCreated || got != "slow but sure" {
		t.Errorf("the write got %s, %q", res.Status, got)
	}
	expect.Same(t, (drained{0, true}), <-end)
	if res, err := front.Client().Get(front.URL); err == nil {
		_ = res.Body.Close()
		t.Errorf("new connections are accepted: %s", res.Status)
	}
}

// TestCompressedStreamingList: what kube-apiserver 1.37 sends to who takes gzip (many events in one
// member, and then one in each) comes through as it was, also after pauses that are longer than a
// client may take to read. At the end the watch ends behind a member, though events keep coming.
func TestCompressedStreamingList(t *testing.T) { inBubbles(t, testCompressedStreamingList) }

func testCompressedStreamingList(t *testing.T, up, down bool) {
	var sent bytes.Buffer // which the handler has, and after it the test
	busy, over := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Vary", "Accept-Encoding")
		send := func(events string) {
			member := proxytest.GzipMember(events)
			sent.Write(member)
			_, _ = w.Write(member)
			_ = http.NewResponseController(w).Flush()
		}
		send(strings.Repeat(`{"type":"ADDED"}`+"\n", 10_000))
		send(`{"type":"BOOKMARK"}` + "\n")
		time.Sleep(100 * time.Millisecond)
		for i := 0; r.Context().Err() == nil; i++ {
			send(fmt.Sprintf(`{"type":"MODIFIED","object":%d}`+"\n", i))
			if i == 5 {
				close(busy)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}))
	front, drain := drainingInPipes(t, upstream, up, down)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+aWatch+"&sendInitialEvents=true&allowWatchBookmarks=true", http.NoBody)
	expect.NoError(t, err)
	request.Header.Set("Accept-Encoding", "gzip") // so the client leaves it as it is
	res, err := front.Client().Do(request)
	expect.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	if got := res.Header; got.Get("Content-Encoding") != "gzip" || got.Get("Vary") != "Accept-Encoding" {
		t.Errorf("the header is %v", got)
	}
	end := make(chan drained, 1)
	go func() {
		select {
		case <-busy:
		case <-over:
		}
		end <- endOf(drain, time.Minute)
	}()
	got := proxytest.ReadAll(t, res.Body)
	expect.Same(t, (drained{0, true}), <-end)
	<-over
	if !bytes.HasPrefix(sent.Bytes(), []byte(got)) {
		t.Errorf("%d bytes, which are not those that were sent", len(got))
	}
	zip, err := gzip.NewReader(strings.NewReader(got))
	expect.NoError(t, err)
	if events := proxytest.ReadAll(t, zip); strings.Count(events, "MODIFIED") < 5 || !strings.HasSuffix(events, "\n") {
		t.Errorf("%d bytes of events", len(events))
	}
}

// TestDrainWaitsForUpgraded: net/http's Shutdown would not.
func TestDrainWaitsForUpgraded(t *testing.T) {
	for protocol, request := range upgradeProtocols {
		t.Run(protocol, func(t *testing.T) {
			upstream := proxytest.StartUpstream(t, false, proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
				for line, err := rw.ReadString('\n'); err == nil; line, err = rw.ReadString('\n') {
					_, _ = rw.WriteString("heard " + line)
					_ = rw.Flush()
				}
			}))
			front, drain, ending := startDraining(t, newForwarder(t, upstream.Config()))
			_, conn, reader := proxytest.SendRaw(t, front, request)
			end := make(chan drained, 1)
			go func() { end <- endOf(drain, time.Hour) }()
			<-ending
			for range 3 {
				_, _ = io.WriteString(conn, "me\n")
				if line, err := reader.ReadString('\n'); line != "heard me\n" {
					t.Fatalf("read %q, %v", line, err)
				}
			}
			select {
			case got := <-end:
				t.Fatalf("it was not waited for: %+v", got)
			default:
			}
			_ = conn.Close()
			expect.Same(t, (drained{0, true}), <-end)
		})
	}
}

// TestDrainCuts: when the time is over, what still goes on is cut, and counted: an upgraded
// connection, and a request.
func TestDrainCuts(t *testing.T) {
	gone := make(chan struct{}, 2)
	upgrade := proxytest.SwitchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.ReadByte()
		gone <- struct{}{}
	})
	upstream := proxytest.StartUpstream(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/exec" {
			upgrade(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	front, drain, _ := startDraining(t, newForwarder(t, upstream.Config()))
	_, _, upgraded := proxytest.SendRaw(t, front, upgradeProtocols["websocket"])
	log := proxytest.Get(t, front.Client(), front.URL+"/api/v1/namespaces/a/pods/b/log?follow=true")
	expect.Same(t, (drained{2, false}), endOf(drain, time.Millisecond))
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

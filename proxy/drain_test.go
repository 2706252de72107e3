package proxy

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

const aWatch = "/api/v1/pods?watch=true"

// startDraining serves as startProxy does, with a Drain; ending is closed when it has begun to end the watches.
func startDraining(t *testing.T, forward known, http2 bool) (_ *httptest.Server, _ *Drain, ending chan struct{}) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	ending = make(chan struct{})
	front := httptest.NewUnstartedServer(nil)
	front.Config = NewServer(NewStallGuard(time.Minute, log).Wrap(NewFront(forward, nil, log)), nil, log)
	drain := NewDrain(front.Config, func(within time.Duration) {
		forward.EndWatches(within)
		close(ending)
	})
	front.EnableHTTP2 = http2
	front.StartTLS()
	t.Cleanup(front.Close)
	return front, drain, ending
}

// TestDrain: watches end at once and in order, also one that has no answer yet; what takes its time goes on to its end.
func TestDrain(t *testing.T) {
	for _, up := range []bool{false, true} {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprintf("client http2=%t upstream http2=%t", down, up), func(t *testing.T) { testDrain(t, up, down) })
		}
	}
}

func testDrain(t *testing.T, up, down bool) {
	const event = `{"type":"BOOKMARK"}` + "\n"
	come, gone := make(chan string, 3), make(chan string, 2)
	upstream := startUpstream(t, up, func(w http.ResponseWriter, r *http.Request) {
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
	})
	front, drain, _ := startDraining(t, newForwarder(t, upstream.config()), down)

	silent := make(chan *http.Response, 1)
	go func() {
		res, err := front.Client().Get(front.URL + "/api/v1/nodes?watch=true")
		if err != nil {
			t.Error(err)
		}
		silent <- res
	}()
	watch := get(t, front.Client(), front.URL+aWatch)
	events := bufio.NewReader(watch.Body)
	if line, err := events.ReadString('\n'); line != event {
		t.Fatalf("read %q, %v", line, err)
	}
	body, uploading := io.Pipe()
	written := make(chan *http.Response, 1)
	go func() {
		res, err := front.Client().Post(front.URL+"/api/v1/namespaces/a/pods", "application/json", body)
		if err != nil {
			t.Error(err)
		}
		written <- res
	}()
	_, _ = io.WriteString(uploading, "slow ")
	for range cap(come) {
		<-come
	}

	cut := make(chan int64, 1)
	go func() { cut <- drain.End(time.Minute) }()
	if rest := readAll(t, events); rest != "" { // an error is one that does not end in order
		t.Errorf("read %q at the end", rest)
	}
	refused := <-silent
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
	case n := <-cut:
		t.Fatalf("the end did not wait for the write: %d were cut", n)
	default:
	}
	_, _ = io.WriteString(uploading, "but sure")
	_ = uploading.Close()
	res := <-written
	defer func() { _ = res.Body.Close() }()
	if got := readAll(t, res.Body); res.StatusCode != http.StatusCreated || got != "slow but sure" {
		t.Errorf("the write got %s, %q", res.Status, got)
	}
	if n := <-cut; n != 0 {
		t.Errorf("%d requests were cut", n)
	}
	if res, err := front.Client().Get(front.URL); err == nil {
		_ = res.Body.Close()
		t.Errorf("new connections are accepted: %s", res.Status)
	}
}

// TestDrainWaitsForUpgraded: net/http's Shutdown would not.
func TestDrainWaitsForUpgraded(t *testing.T) {
	for protocol, request := range upgradeProtocols {
		t.Run(protocol, func(t *testing.T) {
			upstream := startUpstream(t, false, switchTo(t, func(rw *bufio.ReadWriter) {
				for line, err := rw.ReadString('\n'); err == nil; line, err = rw.ReadString('\n') {
					_, _ = rw.WriteString("heard " + line)
					_ = rw.Flush()
				}
			}))
			front, drain, ending := startDraining(t, newForwarder(t, upstream.config()), false)
			_, conn, reader := sendRaw(t, front, request)
			cut := make(chan int64, 1)
			go func() { cut <- drain.End(time.Hour) }()
			<-ending
			for range 3 {
				_, _ = io.WriteString(conn, "me\n")
				if line, err := reader.ReadString('\n'); line != "heard me\n" {
					t.Fatalf("read %q, %v", line, err)
				}
			}
			select {
			case n := <-cut:
				t.Fatalf("it was not waited for: %d were cut", n)
			default:
			}
			_ = conn.Close()
			if n := <-cut; n != 0 {
				t.Errorf("%d were cut", n)
			}
		})
	}
}

// TestDrainCuts: when the time is over, what still goes on is cut, and counted: an upgraded connection, and a request.
func TestDrainCuts(t *testing.T) {
	gone := make(chan struct{}, 2)
	upgrade := switchTo(t, func(rw *bufio.ReadWriter) {
		_, _ = rw.ReadByte()
		gone <- struct{}{}
	})
	upstream := startUpstream(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/exec" {
			upgrade(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	front, drain, _ := startDraining(t, newForwarder(t, upstream.config()), false)
	_, _, upgraded := sendRaw(t, front, upgradeProtocols["websocket"])
	log := get(t, front.Client(), front.URL+"/api/v1/namespaces/a/pods/b/log?follow=true")
	if cut := drain.End(time.Millisecond); cut != 2 {
		t.Errorf("%d were cut", cut)
	}
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

// TestDrainOfTunnels: idle connections in tunnels keep nothing.
func TestDrainOfTunnels(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		d := openDoors(t, http.HandlerFunc(tell), false)
		client := &http.Client{Transport: d.transport(t, "https", http2)}
		readAll(t, get(t, client, "https://"+upstreamName+"/api").Body)
		_ = d.connect.Shutdown(t.Context())
		if cut := d.drain.End(24 * time.Hour); cut != 0 {
			t.Errorf("%d were cut", cut)
		}
		if conn, err := d.tunnels.Accept(); err == nil {
			t.Errorf("a tunnel is accepted: %v", conn)
		}
	}
}

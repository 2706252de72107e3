package forward

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/proxytest"
)

// process is a client that can be stopped, as with SIGSTOP: nothing is read from its connections
// then, not even a ping.
type process struct{ runs chan struct{} } // has a value while it runs

func newProcess() *process {
	p := &process{runs: make(chan struct{}, 1)}
	p.proceed()
	return p
}

func (p *process) stop()    { <-p.runs }
func (p *process) proceed() { p.runs <- struct{}{} }

// stoppableConn is a connection of a process.
type stoppableConn struct {
	net.Conn
	of *process
}

func (c stoppableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.stop()
	c.of.proceed()
	return n, err
}

// TestStoppedClient: what is forwarded belongs to the client and kube-apiserver. A client that is
// stopped for an hour finds all of it when it goes on, whether little has come meanwhile or much.
func TestStoppedClient(t *testing.T) {
	for _, path := range []string{aWatch, "/api/v1/namespaces/a/pods/b/log?follow=true"} {
		inBubbles(t, func(t *testing.T, up, down bool) { testStoppedClient(t, path, up, down) })
	}
}

func testStoppedClient(t *testing.T, path string, up, down bool) {
	const stopped, many = time.Hour, 500 // of 20 KB
	little, much := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		say := func(n, size int) {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"n":%d,"x":"%0*d"}}`+"\n", n, size, 0)
			_ = http.NewResponseController(w).Flush()
		}
		say(0, 1)
		<-little
		say(1, 1)
		<-much
		for i := range many {
			say(2+i, 20_000)
		}
	}))
	front, _ := drainingInPipes(t, upstream, up, down)
	client := newProcess()
	transport := front.Client().Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return stoppableConn{conn, client}, err
	}
	events := bufio.NewReader(proxytest.Get(t, front.Client(), front.URL+path).Body)
	next := 0
	read := func(n int) {
		t.Helper()
		for range n {
			line, err := events.ReadString('\n')
			got := -1
			if _, scanned := fmt.Sscanf(line, `{"type":"ADDED","object":{"n":%d,`, &got); scanned != nil || got != next {
				t.Fatalf("event %d: %.60q, %v", next, line, err)
			}
			next++
		}
	}
	stop := func(while func()) {
		synctest.Wait()
		client.stop()
		while()
		time.Sleep(stopped)
		client.proceed()
	}
	read(1)
	stop(func() {})
	close(little)
	read(1)
	stop(func() { close(much) })
	read(many)
	if rest, err := events.ReadString('\n'); err != io.EOF {
		t.Errorf("at the end: %.60q, %v", rest, err)
	}
}

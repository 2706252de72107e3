package hop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A half-open connection stays silent; the others do not notice.
func TestSwallowAll(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &trackingListener{Listener: inner, conns: map[*trackedConn]struct{}{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "heard")
	}))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()

	lost := make(chan error, 1)
	old := &http.Client{Transport: &http.Transport{}}
	ask := func(c *http.Client) (string, error) {
		resp, err := c.Post(server.URL, "", nil) // a GET would be sent again
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	if got, err := ask(old); got != "heard" {
		t.Fatalf("before: %q, %v", got, err)
	}
	l.swallow()
	go func() {
		_, err := ask(old)
		lost <- err
	}()
	if got, err := ask(&http.Client{Transport: &http.Transport{}}); got != "heard" {
		t.Errorf("a new connection: %q, %v", got, err)
	}
	select {
	case err := <-lost:
		t.Errorf("the old connection was answered, or ended: %v", err)
	default:
	}
	l.cut()
	if err := <-lost; err == nil {
		t.Error("the old connection was answered")
	}
}

// Connections go to the backends in turn, and to none that was taken out.
func TestBalancer(t *testing.T) {
	b, err := StartBalancer()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, name := range []string{"one", "two"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, name) }))
		defer server.Close()
		b.Add(server.Listener.Addr().String())
		if name == "two" {
			defer b.Remove(server.Listener.Addr().String())
		}
	}
	seen := map[string]int{}
	ask := func() string {
		conn, err := net.Dial("tcp", b.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for range 10 {
		seen[ask()]++
	}
	if seen["one"] != 5 || seen["two"] != 5 {
		t.Errorf("not in turn: %v", seen)
	}
	b.mu.Lock()
	first := b.backends[0]
	b.mu.Unlock()
	b.Remove(first)
	for range 4 {
		if got := ask(); got != "two" {
			t.Errorf("%q was taken out, and answers", got)
		}
	}
}

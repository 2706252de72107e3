package hop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// A half-open connection stays silent; the others do not notice.
func TestSwallowAll(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	l := &trackingListener{Listener: inner, conns: map[*trackedConn]struct{}{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "heard")
	}))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()

	old, err := net.Dial("tcp", inner.Addr().String())
	expect.NoError(t, err)
	defer func() { _ = old.Close() }()
	answers := bufio.NewReader(old)
	ask := func() error {
		_, err := fmt.Fprintf(old, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		return err
	}
	expect.NoError(t, ask())
	resp, err := http.ReadResponse(answers, nil)
	expect.NoError(t, err)
	if body, err := io.ReadAll(resp.Body); string(body) != "heard" {
		t.Fatalf("before: %q, %v", body, err)
	}
	_ = resp.Body.Close()
	l.swallow()
	if err := ask(); err != nil {
		t.Errorf("the other side hears of it: %v", err)
	}
	if resp, err := http.Get(server.URL); err != nil {
		t.Errorf("a new connection: %v", err)
	} else {
		_ = resp.Body.Close()
	}
	l.cut()
	if n, _ := io.Copy(io.Discard, answers); n != 0 {
		t.Errorf("the old connection was answered with %d bytes", n)
	}
}

package hop

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

// Connections go to the backends in turn, and to none that was taken out.
func TestBalancer(t *testing.T) {
	b, err := StartBalancer()
	expect.NoError(t, err)
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
		expect.NoError(t, err)
		defer func() { _ = conn.Close() }()
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		expect.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		expect.NoError(t, err)
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

// What is refused, with the connection closed after it, disturbs no other request on its way.
func TestRefusalsDisturbNobody(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" { // as kube-apiserver does after a 401
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	h, err := Start(server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	expect.NoError(t, err)
	defer h.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	done := make(chan struct{})
	var refused sync.WaitGroup
	defer refused.Wait()
	defer close(done)
	refused.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if resp, err := client.Get(h.URL() + "/refused"); err != nil {
				t.Error(err)
			} else {
				_ = resp.Body.Close()
			}
		}
	})
	for range 300 {
		resp, err := client.Post(h.URL()+"/written", "text/plain", strings.NewReader("heard"))
		expect.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != "heard" {
			t.Fatalf("%q, %v", body, err)
		}
	}
}

// TestCompressedWatch: the events of a watch with gzip go on at once, and can be changed.
func TestCompressedWatch(t *testing.T) {
	next := make(chan struct{})
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		for _, line := range []string{"one\n", "two\nthree\n"} {
			_, _ = zipping{w}.Write([]byte(line))
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	defer upstream.Close()
	h, err := Start(upstream.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw}))
	expect.NoError(t, err)
	defer h.Close()
	h.OnLine(func(_ *http.Request, line []byte) ([]byte, error) {
		if string(line) == "two\n" {
			return []byte("2\n"), nil
		}
		return line, nil
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.CA())
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	resp, err := client.Get(h.URL() + "/?watch=true")
	expect.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if !resp.Uncompressed {
		t.Error("it came without gzip")
	}
	in := bufio.NewReader(resp.Body)
	for _, want := range []string{"one\n", "2\n", "three\n"} {
		if got, err := in.ReadString('\n'); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if want != "2\n" {
			next <- struct{}{}
		}
	}
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("then came %q, %v", rest, err)
	}
}

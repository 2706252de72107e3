package forward

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestEachEventIsFlushed lets the upstream write an event only when the client
// has read the one before.
func TestEachEventIsFlushed(t *testing.T) {
	next := make(chan struct{})
	overAllProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sized" {
			w.Header().Set("Content-Length", "80")
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for i := range 10 {
			<-next
			_, _ = fmt.Fprintf(w, "event %d\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	}, func(t *testing.T, front *httptest.Server) {
		for _, path := range []string{"/chunked", "/sized"} {
			res := proxytest.Get(t, front.Client(), front.URL+path) // returns before any event
			line := make([]byte, len("event 0\n"))
			for i := range 10 {
				next <- struct{}{}
				if _, err := io.ReadFull(res.Body, line); err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf("event %d\n", i); string(line) != want {
					t.Errorf("read %q, want %q", line, want)
				}
			}
			if rest := proxytest.ReadAll(t, res.Body); rest != "" {
				t.Errorf("read %q behind the last event", rest)
			}
		}
	})
}

// flushCounter counts the flushes of an answer.
type flushCounter struct {
	http.ResponseWriter
	flushes atomic.Int32
}

func (w *flushCounter) FlushError() error {
	w.flushes.Add(1)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// TestWholeAnswersAreNotFlushed: of an object the header, the body and its end go in one piece.
func TestWholeAnswersAreNotFlushed(t *testing.T) {
	upstream := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("sized") {
			w.Header().Set("Content-Length", "2")
		} else {
			defer func() { _ = http.NewResponseController(w).Flush() }()
		}
		_, _ = io.WriteString(w, "{}")
	})
	forwarder := newForwarder(t, upstream.Config())
	for path, flushed := range map[string]bool{
		"/api/v1/namespaces/a/pods/b":                              false,
		"/api/v1/namespaces/a/pods/b?sized":                        false,
		"/apis/coordination.k8s.io/v1/namespaces/a/leases/b?sized": false,
		"/api/v1/namespaces/a/pods/b/log?sized":                    true,
		"/api/v1/pods?watch=true":                                  true,
		"/apis/example.com/v1/rooms?sized":                         true,
		"/healthz?sized":                                           true,
	} {
		answer := httptest.NewRecorder()
		counter := &flushCounter{ResponseWriter: answer}
		forwarder.ServeHTTP(counter, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got := answer.Body.String(); got != "{}" {
			t.Errorf("%s: %q", path, got)
		}
		if n := counter.flushes.Load(); n > 0 != flushed {
			t.Errorf("%s: %d flushes", path, n)
		}
	}
}

// TestUploadsStream lets the client send a part only when the upstream has read
// the one before, then sends more than all buffers hold.
func TestUploadsStream(t *testing.T) {
	received := make(chan string)
	overAllProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, len("part 0"))
		for range 5 {
			_, _ = io.ReadFull(r.Body, part)
			received <- string(part)
		}
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	}, func(t *testing.T, front *httptest.Server) {
		body, writer := io.Pipe()
		large := bytes.Repeat([]byte("listproxy"), 1<<20)
		go func() {
			for i := range 5 {
				want := fmt.Sprintf("part %d", i)
				_, _ = io.WriteString(writer, want)
				expect.Same(t, want, <-received)
			}
			_, err := writer.Write(large)
			_ = writer.CloseWithError(err)
		}()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/api/v1/x", body)
		expect.NoError(t, err)
		want := fmt.Sprintf("%d %x <nil>", len(large), sha256.Sum256(large))
		expect.Same(t, want, proxytest.ReadAll(t, proxytest.Do(t, front.Client(), r).Body))
	})
}

func TestTrailersPassInBothDirections(t *testing.T) {
	overAllProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-Announced", r.Trailer.Get("X-Sum"))
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "too")
	}, func(t *testing.T, front *httptest.Server) {
		body, writer := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/x", body)
		expect.NoError(t, err)
		r.Trailer = http.Header{"X-Sum": nil}
		go func() {
			_, _ = io.WriteString(writer, "body")
			r.Trailer.Set("X-Sum", "42") // after the body, and before its end
			_ = writer.Close()
		}()
		res := proxytest.Do(t, front.Client(), r)
		expect.Same(t, "body", proxytest.ReadAll(t, res.Body))
		want := http.Header{"X-Announced": {"42"}, "X-Unannounced": {"too"}}
		expect.Same(t, want, res.Trailer)
	})
}

func TestInformationalAnswersPass(t *testing.T) {
	upstream := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusNoContent)
	})
	forwarder := newForwarder(t, upstream.Config())
	front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Status", "listproxy; fwd=bypass")
		forwarder.ServeHTTP(w, r)
	}), false)
	var early http.Header
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if code == http.StatusEarlyHints {
			early = http.Header(header)
		}
		return nil
	}}
	r := httptest.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, front.URL+"/x", nil)
	res := proxytest.Do(t, front.Client(), r)
	expect.Same(t, http.Header{"Link": {"</x>"}}, early)
	expect.Same(t, "listproxy; fwd=bypass", res.Header.Get("Cache-Status"))
}

// TestExpectContinue has a client that sends its body only when told to.
func TestExpectContinue(t *testing.T) {
	overAllProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}, func(t *testing.T, front *httptest.Server) {
		for path, want := range map[string]int{"/accepted": http.StatusOK, "/refused": http.StatusForbidden} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, front.URL+path, strings.NewReader("body"))
			expect.NoError(t, err)
			r.Header.Set("Expect", "100-continue")
			res := proxytest.Do(t, front.Client(), r)
			if res.StatusCode != want {
				t.Errorf("%s: status %s, want %d", path, res.Status, want)
			}
			if body := proxytest.ReadAll(t, res.Body); want == http.StatusOK && body != "body" {
				t.Errorf("%s: body %q", path, body)
			}
		}
	})
}

// TestRefusedUploadIsNotSent: the client's body is only asked for once the
// upstream wants it.
func TestRefusedUploadIsNotSent(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream http2=%t", http2), func(t *testing.T) {
			upstream := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
			transport := upstream.Client().Transport.(*http.Transport)
			transport.ExpectContinueTimeout = time.Hour // however slow this machine is
			forwarder := New(onlyWay{upstream.URL, transport}, slog.New(slog.DiscardHandler))
			front := startProxy(t, known{Forwarder: forwarder}, false)
			res, _, _ := proxytest.SendRaw(t, front, "PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
			if res.StatusCode != http.StatusForbidden {
				t.Errorf("the first answer is %s, want 403", res.Status)
			}
		})
	}
}

func TestClientsCancellationReachesTheUpstream(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/answering" {
			_ = http.NewResponseController(w).Flush()
		}
		started <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
		// An answer that ended well could still arrive while the connection is
		// being closed.
		panic(http.ErrAbortHandler)
	}
	for _, path := range []string{"/answering", "/waiting"} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s http2=%t", path, http2), func(t *testing.T) {
				var records proxytest.Recorder
				upstream := proxytest.StartUpstream(t, http2, handler)
				forwarder := newLoggedForwarder(t, upstream.Config(), slog.New(&records))
				done := make(chan any)
				front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() { done <- recover() }()
					forwarder.ServeHTTP(w, r)
				}), http2)
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-started
					cancel()
				}()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+path, nil)
				expect.NoError(t, err)
				if res, err := front.Client().Do(r); err == nil {
					_, err = io.ReadAll(res.Body)
					if err == nil {
						t.Error("the answer ended well")
					}
					_ = res.Body.Close()
				}
				<-ended
				if err, _ := (<-done).(error); !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("the handler ended with %v, want ErrAbortHandler", err)
				}
				expect.Same(t, []string(nil), records.Above(slog.LevelDebug))
			})
		}
	}
}

// TestUpstreamsEndReachesTheClient: an answer that breaks off must not look
// complete.
func TestUpstreamsEndReachesTheClient(t *testing.T) {
	overAllProtocols(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an ans")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, front *httptest.Server) {
		res := proxytest.Get(t, front.Client(), front.URL+"/x")
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("the answer ended well: %q", body)
		}
	})
}

// TestAnswersPass: the code, the header and the bytes of an answer are the upstream's; a redirect is for the
// client to follow, and what is compressed to decompress.
func TestAnswersPass(t *testing.T) {
	const body = "\x1f\x8b no gzip, which nobody may notice"
	upstreamsOwn := http.Header{
		"Audit-Id": {"1"}, "Cache-Control": {"no-cache, private"}, "Warning": {"299 - \"a\"", "299 - \"b\""},
		"Cache-Status": {"near-origin; hit"}, "X-Kubernetes-Pf-Flowschema-Uid": {"2"}, "Content-Length": {fmt.Sprint(len(body))},
		"Location": {"/to"}, "Content-Encoding": {"gzip"},
	}
	upstream := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Accept-Encoding"]; r.URL.Path != "/from" || !slices.Equal(got, []string{"gzip"}) {
			t.Errorf("asked for %s, with Accept-Encoding %q", r.URL, got)
		}
		maps.Copy(w.Header(), upstreamsOwn)
		// What net/http would add by itself.
		w.Header()["Date"] = nil
		w.Header()["Content-Type"] = nil
		w.WriteHeader(http.StatusTemporaryRedirect)
		_, _ = io.WriteString(w, body)
	})
	forwarder := newForwarder(t, upstream.Config())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Status", "listproxy; fwd=bypass; detail=not-list")
		forwarder.ServeHTTP(w, r)
	})
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			front := startProxy(t, handler, http2)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/from", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			res := proxytest.Do(t, front.Client(), r)
			want := upstreamsOwn.Clone()
			want["Cache-Status"] = []string{"near-origin; hit", "listproxy; fwd=bypass; detail=not-list"}
			expect.Same(t, want, res.Header)
			expect.Same(t, http.StatusTemporaryRedirect, res.StatusCode)
			expect.Same(t, body, proxytest.ReadAll(t, res.Body))
		})
	}
}

func TestMalformedBodyIsTheCallersFault(t *testing.T) {
	var records proxytest.Recorder
	upstream := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	front := startProxy(t, newLoggedForwarder(t, upstream.Config(), slog.New(&records)), false)
	res, _, _ := proxytest.SendRaw(t, front, "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n")
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("status %s, want 400", res.Status)
	}
	expect.Same(t, []string(nil), records.Above(slog.LevelDebug))
}

// TestNothingOfTheProxysOwnIdentity sends an anonymous request through a
// forwarder whose configuration has every credential there is.
func TestNothingOfTheProxysOwnIdentity(t *testing.T) {
	type seen struct {
		Header       http.Header
		Certificates int
	}
	got := make(chan seen, 1)
	upstream := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) {
		got <- seen{r.Header, len(r.TLS.PeerCertificates)}
	})
	certPath, keyPath, err := serve.SelfSigned(t.TempDir(), nil)
	expect.NoError(t, err)
	dir := t.TempDir()
	ran := filepath.Join(dir, "plugin-ran")
	certificate := func(c *rest.Config) {
		c.CertFile, c.KeyFile = certPath, keyPath
	}
	tests := map[string]func(*rest.Config){
		"bearer token":       func(c *rest.Config) { c.BearerToken = "proxys-own" },
		"bearer token file":  func(c *rest.Config) { c.BearerTokenFile = certPath },
		"basic":              func(c *rest.Config) { c.Username, c.Password = "proxy", "own" },
		"client certificate": certificate,
		"impersonation":      func(c *rest.Config) { c.Impersonate.UserName = "system:admin" },
		"wrapped transport": func(c *rest.Config) {
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					r.Header.Set("Authorization", "Bearer proxys-own")
					return rt.RoundTrip(r)
				})
			})
		},
		"exec plugin": func(c *rest.Config) {
			c.ExecProvider = &clientcmdapi.ExecConfig{
				Command: "touch", Args: []string{ran}, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		},
		"client certificate and token": func(c *rest.Config) { certificate(c); c.BearerToken = "proxys-own" },
	}
	for name, configure := range tests {
		t.Run(name, func(t *testing.T) {
			config := upstream.Config()
			configure(config)
			front := startProxy(t, newForwarder(t, config), false)
			for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
				proxytest.SendRaw(t, front, "GET /api HTTP/1.1\r\nHost: x\r\n"+upgrade+"\r\n")
				want := seen{Header: http.Header{"X-Forwarded-For": {"127.0.0.1"}}}
				if upgrade != "" {
					want.Header["Connection"], want.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
				}
				expect.Same(t, want, <-got)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the credential plugin was run")
			}
		})
	}
}

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

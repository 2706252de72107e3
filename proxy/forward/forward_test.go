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
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestOnlyStreamsAreFlushed: an answer with one object is sent in one piece, and a log or a watch is sent as it comes. The
// answer's length makes no difference. ([TestStoppedClient] has watches over all protocols.)
func TestOnlyStreamsAreFlushed(t *testing.T) {
	forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("sized") {
			w.Header().Set("Content-Length", "2")
		}
		_, _ = io.WriteString(w, "{}")
		_ = http.NewResponseController(w).Flush()
	}).Config())
	const pod = "/api/v1/namespaces/a/pods/b"
	for _, tt := range []struct {
		path        string
		wantFlushed bool
	}{
		{path: pod, wantFlushed: false},
		{path: pod + "?sized", wantFlushed: false},
		{path: pod + "/log", wantFlushed: true},
		{path: pod + "/log?sized", wantFlushed: true},
		{path: aWatch, wantFlushed: true},
	} {
		w := httptest.NewRecorder()
		forwarder.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil))
		expect.Same(t, "{}", w.Body.String())
		if w.Flushed != tt.wantFlushed {
			t.Errorf("%s: flushed %t, want %t", tt.path, w.Flushed, tt.wantFlushed)
		}
	}
}

// TestUploadsStream: a body is passed on as it comes: the upstream reads each part before the client sends the next. It may
// have any size. Trailers pass in both directions.
func TestUploadsStream(t *testing.T) {
	received := make(chan string)
	withProxyOverEachProtocol(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		part := make([]byte, len("part 0"))
		for range 5 {
			_, _ = io.ReadFull(r.Body, part)
			received <- string(part)
		}
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
		w.Header().Set("X-Announced", r.Trailer.Get("X-Sum"))
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "too")
	}, func(t *testing.T, front *httptest.Server) {
		body, writer := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/api/v1/x", body)
		expect.NoError(t, err)
		r.Trailer = http.Header{"X-Sum": nil}
		large := bytes.Repeat([]byte("listproxy"), 1<<19) // more than all buffers hold together
		// The client sends five parts, each when the upstream has read the one before, and then the rest at once.
		go func() {
			for i := range 5 {
				want := fmt.Sprintf("part %d", i)
				_, _ = io.WriteString(writer, want)
				expect.Same(t, want, <-received)
			}
			_, err := writer.Write(large)
			r.Trailer.Set("X-Sum", "42") // just in time: net/http sends trailers when the body ends, which is the next line
			_ = writer.CloseWithError(err)
		}()
		res := proxytest.Do(t, front.Client(), r)
		want := fmt.Sprintf("%d %x <nil>", len(large), sha256.Sum256(large))
		expect.Same(t, want, proxytest.ReadAll(t, res.Body))
		expect.Same(t, http.Header{"X-Announced": {"42"}, "X-Unannounced": {"too"}}, res.Trailer)
	})
}

// TestExpectContinue: a client that sends "Expect: 100-continue" sends its body only after a 100 (Continue). Over HTTP/1.1 it
// gets the 100 only if the upstream reads the body. Over HTTP/2, net/http itself sends a 100 in any case.
func TestExpectContinue(t *testing.T) {
	forEachProtocolInBubble(t, func(t *testing.T, over protocols) {
		front, _ := startProxyInBubble(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refused" {
				time.Sleep(500 * time.Millisecond) // less than a second, after which the proxy would send the body in any case
				w.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = io.Copy(w, r.Body)
		}, over)
		front.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
		for _, tt := range []struct {
			path     string
			wantCode int
			want100  bool
			wantBody string
		}{
			{path: "/accepted", wantCode: http.StatusOK, want100: true, wantBody: "body"},
			{path: "/refused", wantCode: http.StatusForbidden, want100: over.http2Client},
		} {
			continued := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued = true }})
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, front.URL+tt.path, strings.NewReader("body"))
			expect.NoError(t, err)
			r.Header.Set("Expect", "100-continue")
			res := proxytest.Do(t, front.Client(), r)
			expect.Same(t, tt.wantBody, proxytest.ReadAll(t, res.Body))
			expect.Same(t, tt.wantCode, res.StatusCode)
			if continued != tt.want100 {
				t.Errorf("%s: the client got a 100: %t, want %t", tt.path, continued, tt.want100)
			}
		}
	})
}

// TestClientsCancellationReachesTheUpstream: if a client cancels its request, the request to the upstream ends, whether the
// answer has begun or not, and nothing is logged.
func TestClientsCancellationReachesTheUpstream(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, over protocols) {
		for _, answerHasBegun := range []bool{false, true} {
			started, ended := make(chan struct{}), make(chan struct{})
			upstream := proxytest.StartUpstream(t, over.http2Upstream, func(w http.ResponseWriter, r *http.Request) {
				if answerHasBegun {
					_ = http.NewResponseController(w).Flush()
				}
				close(started)
				<-r.Context().Done()
				close(ended)
				// An answer that ended well could still arrive while the connection is being closed.
				panic(http.ErrAbortHandler)
			})
			var records proxytest.Recorder
			forwarder := newLoggedForwarder(t, upstream.Config(), slog.New(&records))
			panicked := make(chan any, 1)
			front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { panicked <- recover() }()
				forwarder.ServeHTTP(w, r)
			}), over.http2Client)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-started
				cancel()
			}()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
			expect.NoError(t, err)
			if res, err := front.Client().Do(r); err == nil {
				_ = res.Body.Close()
			}
			<-ended
			if err, _ := (<-panicked).(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("answer has begun %t: the handler panicked with %v, want ErrAbortHandler", answerHasBegun, err)
			}
			expect.Same(t, []string(nil), records.Above(slog.LevelDebug))
		}
	})
}

// TestUpstreamsEndReachesTheClient: an answer that breaks off at the upstream breaks off for the client, too.
func TestUpstreamsEndReachesTheClient(t *testing.T) {
	withProxyOverEachProtocol(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an ans")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, front *httptest.Server) {
		res := proxytest.Get(t, front.Client(), front.URL+"/x")
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("reading the answer gave %q without an error", body)
		}
	})
}

// TestAnswersPass: the client gets the code, the headers and the bytes of the upstream's answer, and a 103 before the answer.
// The proxy follows no redirect, decompresses no body, and adds only what the handler around it has set (Cache-Status).
func TestAnswersPass(t *testing.T) {
	const body = "\x1f\x8b is the beginning of gzip, but this cannot be decompressed"
	upstreamsOwn := http.Header{
		"Audit-Id": {"1"}, "Cache-Control": {"no-cache, private"}, "Warning": {"299 - \"a\"", "299 - \"b\""},
		"Cache-Status": {"near-origin; hit"}, "X-Kubernetes-Pf-Flowschema-Uid": {"2"}, "Content-Length": {fmt.Sprint(len(body))},
		"Location": {"/to"}, "Content-Encoding": {"gzip"},
	}
	upstream := proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Accept-Encoding"]; r.URL.Path != "/from" || !slices.Equal(got, []string{"gzip"}) {
			t.Errorf("the upstream got %s with Accept-Encoding %q, want /from with gzip", r.URL, got)
		}
		w.Header().Set("Link", "</x>") // of the 103 alone
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		maps.Copy(w.Header(), upstreamsOwn)
		// Values of nil keep net/http from adding these headers.
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
	for _, http2 := range []bool{proxytest.HTTP1, proxytest.HTTP2} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			front := startProxy(t, handler, http2)
			var early http.Header
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				expect.Same(t, http.StatusEarlyHints, code)
				early = http.Header(header)
				return nil
			}})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+"/from", nil)
			expect.NoError(t, err)
			r.Header.Set("Accept-Encoding", "gzip")
			res := proxytest.Do(t, front.Client(), r)
			expect.Same(t, http.Header{"Link": {"</x>"}}, early)
			want := upstreamsOwn.Clone()
			want["Cache-Status"] = []string{"near-origin; hit", "listproxy; fwd=bypass; detail=not-list"}
			expect.Same(t, want, res.Header)
			expect.Same(t, http.StatusTemporaryRedirect, res.StatusCode)
			expect.Same(t, body, proxytest.ReadAll(t, res.Body))
		})
	}
}

// stoppableConn is the connection of a client that can be stopped, as with SIGSTOP. A stopped client reads nothing, not even
// a ping.
type stoppableConn struct {
	net.Conn
	runs chan struct{} // has a value while the client runs; a test takes the value to stop the client
}

// Read implements [io.Reader]. While the client is stopped, it does not return.
func (c stoppableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-c.runs
	c.runs <- struct{}{}
	return n, err
}

// TestStoppedClient: a forwarded watch stays open while its client is stopped for an hour. When the client goes on, it reads
// all events that came meanwhile, few or many.
func TestStoppedClient(t *testing.T) { forEachProtocolInBubble(t, testStoppedClient) }

func testStoppedClient(t *testing.T, over protocols) {
	const (
		stopTime = time.Hour
		// The many events are longer together than what Go's client takes in while nobody reads.
		many, largeEvent = 250, 20_000
	)
	sendOne, sendMany := make(chan struct{}), make(chan struct{}) // closed to make the upstream send
	front, _ := startProxyInBubble(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		send := func(n, size int) {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"n":%d,"x":"%0*d"}}`+"\n", n, size, 0)
			_ = http.NewResponseController(w).Flush()
		}
		send(0, 1)
		<-sendOne
		send(1, 1)
		<-sendMany
		for i := range many {
			send(2+i, largeEvent)
		}
	}, over)
	runs := make(chan struct{}, 1)
	runs <- struct{}{}
	transport := front.Client().Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return stoppableConn{conn, runs}, err
	}
	events := bufio.NewReader(proxytest.Get(t, front.Client(), front.URL+aWatch).Body)
	next := 0 // the number of the next event
	// read requires that the next n events come.
	read := func(n int) {
		t.Helper()
		for range n {
			line, err := events.ReadString('\n')
			got := -1
			if _, scanErr := fmt.Sscanf(line, `{"type":"ADDED","object":{"n":%d,`, &got); scanErr != nil || got != next {
				t.Fatalf("got %.60q and error %v, want event %d", line, err, next)
			}
			next++
		}
	}
	// stopWhile stops the client, and makes the upstream send. The client goes on after stopTime.
	stopWhile := func(send chan struct{}) {
		synctest.Wait()
		<-runs
		close(send)
		time.Sleep(stopTime)
		runs <- struct{}{}
	}
	read(1)
	stopWhile(sendOne)
	read(1)
	stopWhile(sendMany)
	read(many)
	if rest, err := events.ReadString('\n'); err != io.EOF {
		t.Errorf("at the end: got %.60q and error %v, want EOF", rest, err)
	}
}

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

// TestWholeAnswersAreNotFlushed: of an object the header, the body and its end go in one piece. What else there is, and
// whether its length is known or not, goes on as it comes; [TestStoppedClient] has that over all protocols.
func TestWholeAnswersAreNotFlushed(t *testing.T) {
	forwarder := newForwarder(t, proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("sized") {
			w.Header().Set("Content-Length", "2")
		}
		_, _ = io.WriteString(w, "{}")
		_ = http.NewResponseController(w).Flush()
	}).Config())
	const pod = "/api/v1/namespaces/a/pods/b"
	for path, flushed := range map[string]bool{pod: false, pod + "?sized": false, pod + "/log": true, pod + "/log?sized": true, aWatch: true} {
		w := httptest.NewRecorder()
		forwarder.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Body.String() != "{}" || w.Flushed != flushed {
			t.Errorf("%s: %q, flushed %t", path, w.Body, w.Flushed)
		}
	}
}

// TestUploadsStream lets the client send a part only when the upstream has read the one before, then sends more
// than all buffers hold. Trailers pass in both directions.
func TestUploadsStream(t *testing.T) {
	received := make(chan string)
	overAllProtocols(t, func(w http.ResponseWriter, r *http.Request) {
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
		large := bytes.Repeat([]byte("listproxy"), 1<<19)
		go func() {
			for i := range 5 {
				want := fmt.Sprintf("part %d", i)
				_, _ = io.WriteString(writer, want)
				expect.Same(t, want, <-received)
			}
			_, err := writer.Write(large)
			r.Trailer.Set("X-Sum", "42") // after the body, and before its end
			_ = writer.CloseWithError(err)
		}()
		res := proxytest.Do(t, front.Client(), r)
		want := fmt.Sprintf("%d %x <nil>", len(large), sha256.Sum256(large))
		expect.Same(t, want, proxytest.ReadAll(t, res.Body))
		expect.Same(t, http.Header{"X-Announced": {"42"}, "X-Unannounced": {"too"}}, res.Trailer)
	})
}

// TestExpectContinue: a client that sends its body only when told to is told so if the upstream wants it. Over
// HTTP/2 it always is: net/http takes the header away.
func TestExpectContinue(t *testing.T) {
	inBubbles(t, func(t *testing.T, over protocols) {
		front, _ := startInPipes(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refused" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = io.Copy(w, r.Body)
		}, over)
		front.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
		for path, want := range map[string]int{"/accepted": http.StatusOK, "/refused": http.StatusForbidden} {
			told := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { told = true }})
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, front.URL+path, strings.NewReader("body"))
			expect.NoError(t, err)
			r.Header.Set("Expect", "100-continue")
			res := proxytest.Do(t, front.Client(), r)
			body := proxytest.ReadAll(t, res.Body)
			if accepted := want == http.StatusOK; res.StatusCode != want || told != (accepted || over.http2Client) || accepted && body != "body" {
				t.Errorf("%s: %s, told to send the body: %t, got %q", path, res.Status, told, body)
			}
		}
	})
}

// TestClientsCancellationReachesTheUpstream: if the client goes, the upstream's request ends, before its answer and
// in the midst of it.
func TestClientsCancellationReachesTheUpstream(t *testing.T) {
	for _, path := range []string{"/answering", "/waiting"} {
		overProtocols(t, func(t *testing.T, over protocols) {
			started, ended := make(chan struct{}), make(chan struct{})
			upstream := proxytest.StartUpstream(t, over.http2Upstream, func(w http.ResponseWriter, r *http.Request) {
				if path == "/answering" {
					_ = http.NewResponseController(w).Flush()
				}
				close(started)
				<-r.Context().Done()
				close(ended)
				// An answer that ended well could still arrive while the connection is being closed.
				panic(http.ErrAbortHandler)
			})
			var records proxytest.Recorder
			forwarder, done := newLoggedForwarder(t, upstream.Config(), slog.New(&records)), make(chan any, 1)
			front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { done <- recover() }()
				forwarder.ServeHTTP(w, r)
			}), over.http2Client)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-started
				cancel()
			}()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+path, nil)
			expect.NoError(t, err)
			if res, err := front.Client().Do(r); err == nil {
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

// TestAnswersPass: the code, the header and the bytes of an answer are the upstream's, and so is what it says before
// (103); a redirect is for the client to follow, and what is compressed to decompress.
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
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
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
			var early http.Header
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				expect.Same(t, http.StatusEarlyHints, code)
				early = http.Header(header)
				return nil
			}})
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, front.URL+"/from", nil)
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

// stoppableConn is a connection of a client that can be stopped, as with SIGSTOP: nothing is read from it then,
// not even a ping.
type stoppableConn struct {
	net.Conn
	runs chan struct{} // has a value while the client runs
}

func (c stoppableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-c.runs
	c.runs <- struct{}{}
	return n, err
}

// TestStoppedClient: what is forwarded belongs to the client and kube-apiserver. A client that is
// stopped for an hour finds all of it when it goes on, whether little has come meanwhile or much.
func TestStoppedClient(t *testing.T) { inBubbles(t, testStoppedClient) }

func testStoppedClient(t *testing.T, over protocols) {
	const stopped, many = time.Hour, 250 // of 20 KB: more than Go's client takes in without being read
	little, much := make(chan struct{}), make(chan struct{})
	front, _ := startInPipes(t, func(w http.ResponseWriter, _ *http.Request) {
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
	stop := func(while chan struct{}) {
		synctest.Wait()
		<-runs
		close(while)
		time.Sleep(stopped)
		runs <- struct{}{}
	}
	read(1)
	stop(little)
	read(1)
	stop(much)
	read(many)
	if rest, err := events.ReadString('\n'); err != io.EOF {
		t.Errorf("at the end: %.60q, %v", rest, err)
	}
}

package serve

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const stallLimit = 10 * time.Second

// overBothPipes runs test in a synctest bubble for each protocol.
func overBothPipes(t *testing.T, test func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{false, true} {
		proxytest.Bubble(t, fmt.Sprintf("http2=%t", http2), func(t *testing.T) { test(t, http2) })
	}
}

func pipeGet(t *testing.T, client *http.Client) *http.Response {
	t.Helper()
	return proxytest.Get(t, client, "http://pipe/x")
}

// stallGuard has answers written by an [AnswerWriter] with a limit, and keeps its log.
type stallGuard struct {
	limit time.Duration
	log   proxytest.Recorder
}

func (g *stallGuard) wrap(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := NewAnswerWriter(w, r, g.limit, slog.New(&g.log))
		defer answer.Finish()
		next(answer, r)
	})
}

// ended has a line for each answer that was ended.
func (g *stallGuard) ended() []string { return g.log.Above(slog.LevelDebug - 1) }

// writeOn writes until it cannot, and sends the error.
func writeOn(errs chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 10_000)); err != nil {
				_, again := w.Write([]byte("x"))
				errs <- errors.Join(err, again)
				return
			}
		}
	}
}

// TestStalledAnswerIsEnded, not too soon. The log has what was asked for, and no object's name.
func TestStalledAnswerIsEnded(t *testing.T) {
	overBothPipes(t, func(t *testing.T, http2 bool) {
		guard := &stallGuard{limit: stallLimit}
		errs := make(chan error, 1)
		client, _ := proxytest.ServePipe(t, guard.wrap(writeOn(errs)), http2)
		res := proxytest.Get(t, client, "http://pipe/api/v1/namespaces/a/secrets/hunter2?x=hunter2")

		time.Sleep(stallLimit - time.Nanosecond)
		synctest.Wait()
		if len(guard.ended()) != 0 || len(errs) != 0 {
			t.Fatalf("ended too soon: %q", guard.ended())
		}
		time.Sleep(time.Nanosecond)
		if err := <-errs; !errors.Is(err, errStalled) {
			t.Errorf("error %v", err)
		}
		ended := guard.ended()
		if len(ended) != 1 || !strings.Contains(ended[0], "get secrets v1") {
			t.Errorf("the log has %q", ended)
		}
		proxytest.AssertNotContains(t, strings.Join(ended, "\n"), "hunter2")
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("the client saw a whole answer")
		}
	})
}

// TestStalledStreamLeavesOthersAlone has two streams on one connection.
func TestStalledStreamLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := make(chan error, 1)
		guard := &stallGuard{limit: stallLimit}
		client, _ := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/other" {
				writeOn(errs)(w, r)
				return
			}
			_ = http.NewResponseController(w).Flush()
			if err := <-errs; !errors.Is(err, errStalled) {
				t.Errorf("error %v", err)
			}
			_, _ = io.WriteString(w, "fine")
		}), true)
		other := proxytest.Get(t, client, "http://pipe/other")
		pipeGet(t, client)
		expect.Same(t, "fine", proxytest.ReadAll(t, other.Body))
	})
}

// TestIdleAnswersAreNotEnded: watches that are idle for long between their events, on a connection that is
// used again long after its last answer.
func TestIdleAnswersAreNotEnded(t *testing.T) {
	overBothPipes(t, func(t *testing.T, http2 bool) {
		guard, calls := &stallGuard{limit: stallLimit}, make(chan struct{}, 10) // the client would try again
		client, _ := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, _ *http.Request) {
			calls <- struct{}{}
			controller := http.NewResponseController(w)
			for i := range 3 {
				time.Sleep(100 * stallLimit)
				_, err := fmt.Fprintf(w, "event %d\n", i)
				if err := errors.Join(err, controller.Flush()); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(100 * stallLimit)
		}), http2)
		for range 3 {
			expect.Same(t, "event 0\nevent 1\nevent 2\n", proxytest.ReadAll(t, pipeGet(t, client).Body))
			time.Sleep(2 * stallLimit)
		}
		expect.Same(t, 3, len(calls))
		expect.Same(t, 0, len(guard.ended()))
	})
}

// TestSlowAnswersAreNotEnded has one large write, and a client that reads 256 KiB in somewhat less than the
// limit; without a limit it waits for as long as it likes. All comes as it was written.
func TestSlowAnswersAreNotEnded(t *testing.T) {
	sent := make([]byte, 6*stallChunk+7)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	for limit, pause := range map[time.Duration]time.Duration{stallLimit: stallLimit / 10, 0: 24 * time.Hour} {
		overBothPipes(t, func(t *testing.T, http2 bool) {
			guard := &stallGuard{limit: limit}
			client, _ := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, _ *http.Request) {
				if n, err := w.Write(sent); n != len(sent) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
			}), http2)
			begun, read := time.Now(), []byte(nil)
			body := pipeGet(t, client).Body
			for buf := make([]byte, stallChunk/8); ; {
				n, err := io.ReadFull(body, buf)
				read = append(read, buf[:n]...)
				if err != nil {
					break
				}
				time.Sleep(pause)
			}
			if !bytes.Equal(read, sent) || time.Since(begun) < 4*stallLimit || len(guard.ended()) != 0 {
				t.Errorf("limit %v: read %d of %d bytes in %v, ended: %q", limit, len(read), len(sent), time.Since(begun), guard.ended())
			}
		})
	}
}

// TestStallAfterTheHandler has an answer that is in the server's buffers when
// its handler returns.
func TestStallAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &stallGuard{limit: stallLimit}
		_, dial := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
		}), false)
		conn := dial()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(stallLimit + time.Second)
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}

// TestStuckConnectionIsClosed: an answer whose stream cannot be ended, since nothing can be written on
// its connection, takes the connection with it.
func TestStuckConnectionIsClosed(t *testing.T) {
	errs := make(chan error, 1)
	guard := &stallGuard{limit: 100 * time.Millisecond}
	front := startProxy(t, guard.wrap(writeOn(errs)), true)
	conn, err := tls.Dial("tcp", front.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // #nosec G402 -- loopback
	expect.NoError(t, err)
	defer func() { _ = conn.Close() }()
	framer := h2.NewFramer(conn, nil)
	_, err = io.WriteString(conn, h2.ClientPreface)
	expect.NoError(t, err)
	expect.NoError(t, framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1<<31 - 1}))
	expect.NoError(t, framer.WriteWindowUpdate(0, 1<<30))
	var head bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: "x"}} {
		expect.NoError(t, fields.WriteField(f))
	}
	expect.NoError(t, framer.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}))
	if err := <-errs; !errors.Is(err, errStalled) { // although the client reads nothing at all
		t.Errorf("error %v", err)
	}
}

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
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const stallLimit = 10 * time.Second

func pipeGet(t *testing.T, client *http.Client) *http.Response {
	t.Helper()
	return proxytest.Get(t, client, "http://pipe/x")
}

// overBothPipes runs test in a synctest bubble for each protocol.
func overBothPipes(t *testing.T, test func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, http2) })
		})
	}
}

// countedGuard has answers written by an [AnswerWriter] whose log is kept.
type countedGuard struct {
	limit time.Duration
	log   *proxytest.Recorder
}

func newStallGuard(limit time.Duration) countedGuard {
	return countedGuard{limit, &proxytest.Recorder{}}
}

func (g countedGuard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := NewAnswerWriter(w, r, g.limit, slog.New(g.log))
		defer answer.Finish()
		next.ServeHTTP(answer, r)
	})
}

// ended returns how many answers were ended: each is logged.
func (g countedGuard) ended() int { return len(g.log.Above(slog.LevelDebug - 1)) }

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
		guard := newStallGuard(stallLimit)
		errs := make(chan error, 1)
		client, _ := proxytest.ServePipe(t, guard.Wrap(writeOn(errs)), http2)
		res := proxytest.Get(t, client, "http://pipe/api/v1/namespaces/a/secrets/hunter2?x=hunter2")

		time.Sleep(stallLimit - time.Nanosecond)
		synctest.Wait()
		if n := guard.ended(); n != 0 || len(errs) != 0 {
			t.Fatalf("%d answers ended too soon", n)
		}
		time.Sleep(time.Nanosecond)
		if err := <-errs; !errors.Is(err, errStalled) {
			t.Errorf("error %v", err)
		}
		logged := guard.log.Above(slog.LevelDebug - 1)
		if len(logged) != 1 || !strings.Contains(logged[0], "get secrets v1") {
			t.Errorf("the log has %q", logged)
		}
		proxytest.AssertNotContains(t, strings.Join(logged, "\n"), "hunter2")
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("the client saw a whole answer")
		}
	})
}

// TestStalledStreamLeavesOthersAlone has two streams on one connection.
func TestStalledStreamLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := make(chan error, 1)
		mux := http.NewServeMux()
		mux.Handle("/x", writeOn(errs))
		mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			if err := <-errs; !errors.Is(err, errStalled) {
				t.Errorf("error %v", err)
			}
			_, _ = io.WriteString(w, "fine")
		})
		client, _ := proxytest.ServePipe(t, newStallGuard(stallLimit).Wrap(mux), true)
		other := proxytest.Get(t, client, "http://pipe/other")
		pipeGet(t, client)
		expect.Same(t, "fine", proxytest.ReadAll(t, other.Body))
	})
}

// TestIdleAnswerIsNotEnded has a watch that is idle for long between its events.
func TestIdleAnswerIsNotEnded(t *testing.T) {
	overBothPipes(t, func(t *testing.T, http2 bool) {
		guard := newStallGuard(stallLimit)
		client, _ := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			controller := http.NewResponseController(w)
			for i := range 3 {
				time.Sleep(100 * stallLimit)
				_, err := fmt.Fprintf(w, "event %d\n", i)
				if err := errors.Join(err, controller.Flush()); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(100 * stallLimit)
		})), http2)
		expect.Same(t, "event 0\nevent 1\nevent 2\n", proxytest.ReadAll(t, pipeGet(t, client).Body))
		expect.Same(t, 0, guard.ended())
	})
}

// TestSlowAnswerIsNotEnded has one large write and a client that reads 256 KiB in
// somewhat less than the limit. All comes as it was written.
func TestSlowAnswerIsNotEnded(t *testing.T) {
	sent := make([]byte, 20*stallChunk+7)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	overBothPipes(t, func(t *testing.T, http2 bool) {
		guard := newStallGuard(stallLimit)
		client, _ := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n, err := w.Write(sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})), http2)
		begun, read := time.Now(), []byte(nil)
		body := pipeGet(t, client).Body
		for buf := make([]byte, stallChunk/8); ; {
			n, err := io.ReadFull(body, buf)
			read = append(read, buf[:n]...)
			if err != nil {
				break
			}
			time.Sleep(stallLimit / 10)
		}
		if !bytes.Equal(read, sent) || time.Since(begun) < 10*stallLimit || guard.ended() != 0 {
			t.Errorf("read %d of %d bytes in %v, %d answers ended", len(read), len(sent), time.Since(begun), guard.ended())
		}
	})
}

// TestStallAfterTheHandler has an answer that is in the server's buffers when
// its handler returns.
func TestStallAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial := proxytest.ServePipe(t, newStallGuard(stallLimit).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
		})), false)
		conn := dial()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(stallLimit + time.Second)
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}

// TestDeadlineDoesNotOutliveTheAnswer has a connection that is used again long
// after its last answer.
func TestDeadlineDoesNotOutliveTheAnswer(t *testing.T) {
	overBothPipes(t, func(t *testing.T, http2 bool) {
		var calls atomic.Int32 // the client would try again
		client, _ := proxytest.ServePipe(t, newStallGuard(stallLimit).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			time.Sleep(2 * stallLimit)
			_, err := io.WriteString(w, "here")
			if err := errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
				t.Error(err)
			}
		})), http2)
		for range 3 {
			if got := proxytest.ReadAll(t, pipeGet(t, client).Body); got != "here" {
				t.Fatalf("read %q", got)
			}
			time.Sleep(2 * stallLimit)
		}
		expect.Same(t, int32(3), calls.Load())
	})
}

func TestStallGuardLeavesShortAnswersAsTheyAre(t *testing.T) {
	overBothPipes(t, func(t *testing.T, http2 bool) {
		client, _ := proxytest.ServePipe(t, newStallGuard(stallLimit).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
		})), http2)
		if res := pipeGet(t, client); res.ContentLength != int64(len("short")) {
			t.Errorf("Content-Length %d", res.ContentLength)
		}
	})
}

// TestLateTimer has the timer's call come when its write has ended and another
// one is on its way.
func TestLateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newStallGuard(stallLimit)
		w := NewAnswerWriter(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), stallLimit, slog.New(guard.log))
		w.begin()
		w.mu.Lock()
		time.Sleep(stallLimit) // expire is called, and waits
		w.since = time.Now()   // of another write
		w.mu.Unlock()
		synctest.Wait()
		if guard.ended() != 0 {
			t.Fatal("the second write was ended by the first one's timer")
		}
		time.Sleep(stallLimit)
		synctest.Wait()
		if guard.ended() != 1 {
			t.Error("the second write was not ended by its own timer")
		}
		w.Finish()
	})
}

// TestNoLimit: without one an answer waits for as long as its client likes.
func TestNoLimit(t *testing.T) {
	overBothPipes(t, func(t *testing.T, http2 bool) {
		guard := newStallGuard(0)
		client, _ := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 10*stallChunk))
		})), http2)
		res := pipeGet(t, client)
		time.Sleep(24 * time.Hour)
		if n, err := io.Copy(io.Discard, res.Body); n != 10*stallChunk || err != nil || guard.ended() != 0 {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// TestStuckConnectionIsClosed: an answer whose stream cannot be ended, since nothing can be written on
// its connection, takes the connection with it.
func TestStuckConnectionIsClosed(t *testing.T) {
	errs := make(chan error, 1)
	front := startProxy(t, newStallGuard(100*time.Millisecond).Wrap(writeOn(errs)), true)
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

// TestStalledClientsOverTCP is the same over TLS and TCP. It only
// ends if the guard does its work.
func TestStalledClientsOverTCP(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			errs := make(chan error, 1)
			front := startProxy(t, newStallGuard(time.Second).Wrap(writeOn(errs)), http2)
			res := proxytest.Get(t, front.Client(), front.URL)
			if want := map[bool]int{false: 1, true: 2}[http2]; res.ProtoMajor != want {
				t.Fatal(res.Proto)
			}
			if err := <-errs; !errors.Is(err, errStalled) {
				t.Errorf("error %v", err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Error("the client saw a whole answer")
			}
		})
	}
}

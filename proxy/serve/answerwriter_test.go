package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// stallLimit is the time within which a client must read more of an answer.
const stallLimit = 10 * time.Second

// overBothProtocols runs test for HTTP/1.1 and for HTTP/2, each in a synctest bubble.
func overBothProtocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{proxytest.HTTP1, proxytest.HTTP2} {
		proxytest.Bubble(t, fmt.Sprintf("http2=%t", http2), func(t *testing.T) { test(t, http2) })
	}
}

// stallGuard makes handlers write their answers through an [AnswerWriter] with stallLimit, and keeps its log.
type stallGuard struct{ log proxytest.Recorder }

// wrap returns a handler that calls next with an AnswerWriter.
func (g *stallGuard) wrap(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := NewAnswerWriter(w, r, stallLimit, slog.New(&g.log))
		defer answer.Finish()
		next(answer, r)
	})
}

// belowAllLevels, as the argument of proxytest.Recorder.Above, makes it return all records.
const belowAllLevels = slog.LevelDebug - 1

// endedAnswers returns the lines of the log: one for each answer that was ended at the limit.
func (g *stallGuard) endedAnswers() []string { return g.log.Above(belowAllLevels) }

// writeUntilError returns a handler that writes until an error. It sends that error to errs, joined with the error of one
// more write.
func writeUntilError(errs chan<- error) http.HandlerFunc {
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

// TestStalledAnswerIsEnded: an answer that its client does not read is ended at stallLimit, and not before. Another answer goes
// on. (Over HTTP/2, both are on one connection.) The log has the verb and the resource, but not the object's name.
func TestStalledAnswerIsEnded(t *testing.T) {
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		// Two answers. The client does not read the one that is written until an error. The other one waits for goOn.
		guard := &stallGuard{}
		errs, goOn := make(chan error, 1), make(chan struct{})
		client, _ := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/other" {
				writeUntilError(errs)(w, r)
				return
			}
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, "fine")
		}), http2)
		other := proxytest.Get(t, client, "http://pipe/other")
		res := proxytest.Get(t, client, "http://pipe/api/v1/namespaces/a/secrets/hunter2?x=hunter2")

		// Just before the limit, both go on.
		begun := time.Now()
		time.Sleep(stallLimit - time.Nanosecond)
		synctest.Wait()
		if len(guard.endedAnswers()) != 0 || len(errs) != 0 {
			t.Fatalf("answers were ended before the limit: %q", guard.endedAnswers())
		}

		// At the limit, the first one is ended.
		time.Sleep(time.Nanosecond)
		if err := <-errs; !errors.Is(err, errStalled) {
			t.Errorf("the error is %v, want %v", err, errStalled)
		}
		if late := time.Since(begun) - stallLimit; late > streamResetTime {
			t.Errorf("the answer was ended %v after the limit, want at most %v", late, streamResetTime)
		}
		ended := guard.endedAnswers()
		if len(ended) != 1 || !strings.Contains(ended[0], "get secrets v1") {
			t.Errorf("the log has %q, want one line about get secrets v1", ended)
		}
		proxytest.AssertNotContains(t, strings.Join(ended, "\n"), "hunter2")
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("the client reads the whole answer, want it broken off")
		}

		// The second one goes on to its end.
		close(goOn)
		expect.Same(t, "fine", proxytest.ReadAll(t, other.Body))
	})
}

// TestIdleAnswersAreNotEnded: an answer goes on while the client has read everything. A watch may be idle for longer than
// the limit between its events, and so may a connection between its answers.
func TestIdleAnswersAreNotEnded(t *testing.T) {
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		guard := &stallGuard{}
		calls := make(chan struct{}, 10) // more than three would be repeated requests
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
			expect.Same(t, "event 0\nevent 1\nevent 2\n", proxytest.ReadAll(t, proxytest.Get(t, client, "http://pipe/x").Body))
			time.Sleep(2 * stallLimit)
		}
		expect.Same(t, 3, len(calls))
		expect.Same(t, 0, len(guard.endedAnswers()))
	})
}

// TestSlowAnswersAreNotEnded: the limit is for each 256 KiB (maxChunk) of a large write. A slow client that reads each of them
// within the limit gets the whole answer.
func TestSlowAnswersAreNotEnded(t *testing.T) {
	sent := make([]byte, 6*maxChunk+7) // not a multiple of maxChunk
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		guard := &stallGuard{}
		client, _ := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, _ *http.Request) {
			if n, err := w.Write(sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d bytes and got error %v, want %d", n, err, len(sent))
			}
		}), http2)
		begun, read := time.Now(), []byte(nil)
		body := proxytest.Get(t, client, "http://pipe/x").Body
		for buf := make([]byte, maxChunk/8); ; {
			n, err := io.ReadFull(body, buf)
			read = append(read, buf[:n]...)
			if err != nil {
				break
			}
			time.Sleep(stallLimit / 10) // eight of these for each maxChunk
		}
		if !bytes.Equal(read, sent) {
			t.Errorf("read %d bytes, want the %d that were sent", len(read), len(sent))
		}
		if took := time.Since(begun); took < 4*stallLimit {
			t.Errorf("reading took %v, want several times the limit, or the test shows nothing", took)
		}
		expect.Same(t, 0, len(guard.endedAnswers()))
	})
}

// TestStallAfterTheHandler: the limit also holds for an answer that is still in the server's buffers when its handler
// returns.
func TestStallAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &stallGuard{}
		_, dial := proxytest.ServePipe(t, guard.wrap(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
		}), proxytest.HTTP1)
		conn := dial()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(stallLimit + time.Second)
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v; want the end of the connection", n, err)
		}
	})
}

// deafConn is the connection of a client that reads nothing at all.
type deafConn struct {
	net.Conn
	left chan struct{} // closed when the client leaves
}

func (c deafConn) Read([]byte) (int, error) {
	<-c.left
	return 0, io.EOF
}

// TestStuckConnectionIsClosed: if the stream of a stalled answer cannot be reset, since nothing can be written to its
// connection, the connection is closed.
func TestStuckConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &stallGuard{}
		errs, left := make(chan error, 1), make(chan struct{})
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		server := New(guard.wrap(writeUntilError(errs)), nil, proxytest.DiscardLog())
		server.Protocols = &protocols
		pipes := proxytest.ServeInPipes(t, server)
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := pipes.Dial(ctx, "", "")
			return deafConn{Conn: conn, left: left}, err
		}
		client := &http.Client{Transport: &http.Transport{Protocols: &protocols, DialContext: dial}}
		go func() {
			if res, err := client.Get("http://pipe/x"); err == nil {
				t.Errorf("the client read %s, want an error", res.Status)
				_ = res.Body.Close()
			}
		}()
		if err := <-errs; !errors.Is(err, errStalled) {
			t.Errorf("the error is %v, want %v", err, errStalled)
		}
		close(left)
	})
}

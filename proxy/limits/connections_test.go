package limits

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// pipeListener accepts the connections that a test sends.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (pipeListener) Close() error   { return nil }
func (pipeListener) Addr() net.Addr { return nil }

// TestConnections: at the bound, a new connection replaces an idle one, which waits for a request: the one that has waited
// longest. If no connection is idle, the new one waits until another ends or becomes idle.
func TestConnections(t *testing.T) {
	const maxOpen = 3
	for name, tt := range map[string]struct {
		// steps are 400 ms apart. "new" is a new connection. "2 active" sets the state of the third connection. "2 asked" is an
		// HTTP/2 request on the third connection. "wait" only lets time pass.
		steps    string
		wantOpen string // the connections that are open in the end: "023" are the first, third and fourth
	}{
		// Which connection is replaced.
		"the one that has waited longest goes": {steps: "new, new, new, new", wantOpen: "123"},
		"its last answer counts":               {steps: "new, new, new, 0 active, 0 idle, new", wantOpen: "023"},
		// Connections with a request.
		"one with a request stays":                {steps: "new, 0 active, new, new, new", wantOpen: "023"},
		"all have a request":                      {steps: "new, new, new, 0 active, 1 active, 2 active, new", wantOpen: "012"},
		"all have a request, and one ends":        {steps: "new, new, new, 0 active, 1 active, 2 active, new, 1 closed", wantOpen: "023"},
		"all have a request, and one is answered": {steps: "new, new, new, 0 active, 1 active, 2 active, new, 1 idle", wantOpen: "023"},
		"answered, and in use again":              {steps: "new, new, new, 0 active, 0 idle, 0 active, 1 active, new", wantOpen: "013"},
		// States that change nothing.
		"another state changes nothing": {steps: "new, new, new, 0 new, new", wantOpen: "123"},
		"closed twice":                  {steps: "new, 0 closed, 0 closed, 0 idle, new, new, new", wantOpen: "123"},
		// Over HTTP/2, a connection counts as in use until answerEndDelay after an answer.
		"answered over HTTP/2 just now": {
			steps: "new, new, new, 0 active, 0 asked, 1 active, 2 active, 0 idle, new", wantOpen: "012",
		},
		"answered over HTTP/2 a second ago": {
			steps: "new, new, new, 0 active, 0 asked, 1 active, 2 active, 0 idle, new, wait, wait", wantOpen: "123",
		},
		"answered over HTTP/2, and in use again": {
			steps: "new, new, new, 0 active, 0 asked, 1 active, 2 active, 0 idle, 0 active, new, wait", wantOpen: "012",
		},
		"a request comes on a closed connection": {
			steps: "new, new, new, new, 0 active, 0 idle, new", wantOpen: "234",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bound := NewConnections(maxOpen)
				incoming := make(pipeListener)
				listener := bound.Listen(incoming)
				var accepted []net.Conn
				ended := make(chan error)
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							ended <- err
							return
						}
						accepted = append(accepted, tls.Server(conn, nil))
					}
				}()
				for step := range strings.SplitSeq(tt.steps, ", ") {
					number, what, isState := strings.Cut(step, " ")
					switch {
					case isState:
						apply(accepted[number[0]-'0'], what)
					case step != "wait":
						here, there := net.Pipe()
						t.Cleanup(func() { _ = there.Close() })
						incoming <- here
					}
					time.Sleep(400 * time.Millisecond)
					synctest.Wait()
				}
				open := ""
				for i, conn := range accepted {
					if isOpen := NoteRequest(conn, &http.Request{}); isOpen {
						open += fmt.Sprint(i)
					}
				}
				expect.Same(t, tt.wantOpen, open)
				expect.Same(t, int64(len(open)), bound.Open())
				expect.Same(t, maxOpen, bound.Limit())

				expect.NoError(t, listener.Close())
				close(incoming)
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept ended with %v, want %v", err, net.ErrClosed)
				}
				for _, conn := range accepted {
					apply(conn, "closed")
				}
				expect.Same(t, int64(0), bound.Open())
				expect.Same(t, 0, bound.idle.Len())
			})
		})
	}
}

// apply does a step on a connection, as its server does.
func apply(conn net.Conn, step string) {
	switch step {
	case "closed":
		_ = unwrap(conn).Close()
	case "active":
		NoteState(conn, http.StateActive)
	case "idle":
		NoteState(conn, http.StateIdle)
	case "asked":
		NoteRequest(conn, &http.Request{ProtoMajor: 2})
	case "new":
		NoteState(conn, http.StateNew)
	default:
		panic("no such step: " + step)
	}
}

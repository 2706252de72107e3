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
	"github.com/listproxy/listproxy/test/inmemory"
)

// TestConnections: at most three connections are open. A connection is idle while it waits for a request. A fourth connection
// replaces the one that has been idle for longest. If none is idle, the fourth waits until another ends or becomes idle.
func TestConnections(t *testing.T) {
	const (
		maxOpen  = 3
		stepTime = 400 * time.Millisecond // three steps take longer than answerEndDelay, which is a second
	)
	for name, tt := range map[string]struct {
		// steps are stepTime apart. Connections are numbered from 0, in the order in which they come:
		//
		//	2 opened   two new connections come
		//	2 active   a request comes on connection 2
		//	2 idle     the last request on connection 2 is answered
		//	2 closed   connection 2 is closed
		//	wait       time passes
		steps    string
		wantOpen string // the numbers of the connections that are open in the end: "023" means 0, 2 and 3
	}{
		// Which connection is replaced.
		"the one that has waited longest":             {steps: "4 opened", wantOpen: "123"},
		"not the first one, which was answered later": {steps: "3 opened, 0 active, 0 idle, 1 opened", wantOpen: "023"},
		// Connections with a request.
		"one with a request stays":         {steps: "1 opened, 0 active, 3 opened", wantOpen: "023"},
		"all have a request":               {steps: "3 opened, 0 active, 1 active, 2 active, 1 opened", wantOpen: "012"},
		"all have a request, and one ends": {steps: "3 opened, 0 active, 1 active, 2 active, 1 opened, 1 closed", wantOpen: "023"},
		"answered, and in use again":       {steps: "3 opened, 0 active, 0 idle, 0 active, 1 active, 1 opened", wantOpen: "013"},
		// States that change nothing.
		"another state changes nothing": {steps: "3 opened, 0 new, 1 opened", wantOpen: "123"},
		"closed twice":                  {steps: "1 opened, 0 closed, 0 closed, 0 idle, 3 opened", wantOpen: "123"},
		// A connection counts as in use until answerEndDelay after an answer.
		"all have a request, and one is answered just now": {
			steps: "3 opened, 0 active, 1 active, 2 active, 1 opened, 1 idle", wantOpen: "012",
		},
		"all have a request, and one was answered a second ago": {
			steps: "3 opened, 0 active, 1 active, 2 active, 1 opened, 1 idle, wait, wait", wantOpen: "023",
		},
		"all have a request, and one is answered and in use again": {
			steps: "3 opened, 0 active, 1 active, 2 active, 0 idle, 0 active, 1 opened, wait", wantOpen: "012",
		},
		"a request comes on a closed connection": {
			steps: "4 opened, 0 active, 0 idle, 1 opened", wantOpen: "234",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bound := NewConnections(maxOpen)
				incoming := inmemory.NewListener()
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
				endStep := func() {
					time.Sleep(stepTime)
					synctest.Wait()
				}
				for step := range strings.SplitSeq(tt.steps, ", ") {
					digit, what, _ := strings.Cut(step, " ")
					number := int(digit[0] - '0')
					switch {
					case step == "wait":
						endStep()
					case what == "opened":
						for range number {
							client, err := incoming.Dial(t.Context(), "", "")
							expect.NoError(t, err)
							t.Cleanup(func() { _ = client.Close() })
							endStep()
						}
					default:
						changeState(accepted[number], what)
						endStep()
					}
				}
				open := "" // the numbers of the open connections
				for i, conn := range accepted {
					if IsOpen(conn) {
						open += fmt.Sprint(i)
					}
				}
				expect.Same(t, tt.wantOpen, open)
				expect.Same(t, int64(len(open)), bound.Open())
				expect.Same(t, maxOpen, bound.Limit())

				// In the end, everything is closed, and nothing is left over.
				expect.NoError(t, listener.Close())
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept ended with %v, want %v", err, net.ErrClosed)
				}
				for _, conn := range accepted {
					changeState(conn, "closed")
				}
				expect.Same(t, int64(0), bound.Open())
				expect.Same(t, 0, bound.idle.Len())
			})
		})
	}
}

// changeState closes a connection, or reports another state of it, as its server does.
func changeState(conn net.Conn, state string) {
	switch state {
	case "closed":
		_ = unwrap(conn).Close()
	case "active":
		NoteState(conn, http.StateActive)
	case "idle":
		NoteState(conn, http.StateIdle)
	case "new":
		NoteState(conn, http.StateNew)
	default:
		panic("no such state: " + state)
	}
}

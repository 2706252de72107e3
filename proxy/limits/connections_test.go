package limits

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// dialed is a listener to which the connections of a test come.
type dialed chan net.Conn

func (d dialed) Accept() (net.Conn, error) {
	conn, ok := <-d
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (dialed) Close() error   { return nil }
func (dialed) Addr() net.Addr { return nil }

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	remote string
}

func (a addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(a.remote), 1))
}

// TestConnections: at the bound of three, a new connection replaces one that waits for a request: of the network with
// most of these, the one that has waited longest. If all have a request, the new one waits; what ends its wait is a
// connection that ends, or that waits for its next request.
func TestConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		steps    string // separated by commas: who dials (an address), or what becomes of the connection with a number
		wantOpen string // the numbers of the connections that are open afterwards
	}{
		"the one that has waited longest goes": {steps: "10.0.0.1, 10.0.0.1, 10.0.0.1, 10.0.0.1", wantOpen: "123"},
		"the network with most loses one":      {steps: "10.0.0.2, 10.0.0.1, 10.0.0.1, 10.0.0.3", wantOpen: "023"},
		"the new one counts":                   {steps: "10.0.0.1, 0 active, 10.0.0.2, 10.0.0.3, 10.0.0.3, 10.0.0.3", wantOpen: "014"},
		"an IPv6 host has one network":         {steps: "10.0.0.2, 2001:db8::1, 2001:db8::2, 10.0.0.3", wantOpen: "023"},
		"of equal networks the longest wait": {
			steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 0 idle, 10.0.0.4", wantOpen: "023",
		},
		"one with a request stays": {steps: "10.0.0.1, 0 active, 10.0.0.1, 10.0.0.2, 10.0.0.3", wantOpen: "023"},
		"all have a request":       {steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 1 active, 2 active, 10.0.0.4", wantOpen: "012"},
		"all have a request, and one ends": {
			steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 1 active, 2 active, 10.0.0.4, 1 closed", wantOpen: "023",
		},
		"all have a request, and one is answered": {
			steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 1 active, 2 active, 10.0.0.4, 1 idle", wantOpen: "023",
		},
		"answered, and in use again": {
			steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 0 idle, 0 active, 1 active, 10.0.0.4", wantOpen: "013",
		},
		"another state changes nothing": {steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 new, 10.0.0.4", wantOpen: "123"},
		"closed twice":                  {steps: "10.0.0.1, 0 closed, 0 closed, 0 idle, 10.0.0.2, 10.0.0.3, 10.0.0.4", wantOpen: "123"},
		"answered over HTTP/2 just now": {
			steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 0 asked, 1 active, 2 active, 0 idle, 10.0.0.4", wantOpen: "012",
		},
		"answered over HTTP/2 a second ago": {
			steps:    "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 0 asked, 1 active, 2 active, 0 idle, 10.0.0.4, 1 active, 1 active",
			wantOpen: "123",
		},
		"answered over HTTP/2, and in use again": {
			steps:    "10.0.0.1, 10.0.0.2, 10.0.0.3, 0 active, 0 asked, 1 active, 2 active, 0 idle, 0 active, 10.0.0.4, 2 active",
			wantOpen: "012",
		},
		"a request comes on a closed connection": {
			steps: "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 0 active, 0 idle, 10.0.0.5", wantOpen: "234",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bound, incoming := NewConnections(3), make(dialed)
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
					if !isState {
						here, there := net.Pipe()
						t.Cleanup(func() { _ = there.Close() })
						incoming <- addressed{here, step}
					} else {
						apply(accepted[number[0]-'0'], what)
					}
					time.Sleep(400 * time.Millisecond)
					synctest.Wait()
				}
				open := ""
				for i, conn := range accepted {
					if NoteRequest(conn, &http.Request{}) {
						open += fmt.Sprint(i)
					}
				}
				expect.Same(t, tt.wantOpen, open)
				if bound.Open() != int64(len(open)) || bound.Limit() != 3 {
					t.Errorf("%d connections of %d are open, want %d of 3", bound.Open(), bound.Limit(), len(open))
				}
				expect.NoError(t, listener.Close())
				close(incoming)
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("the listener ended with %v", err)
				}
				for _, conn := range accepted {
					apply(conn, "closed")
				}
				if bound.Open() != 0 || len(bound.idle) != 0 {
					t.Errorf("%d are open, of %d networks some are idle", bound.Open(), len(bound.idle))
				}
			})
		})
	}
}

// apply tells a connection what its server has seen.
func apply(conn net.Conn, what string) {
	switch what {
	case "closed":
		_ = unwrap(conn).Close()
	case "active":
		NoteState(conn, http.StateActive)
	case "idle":
		NoteState(conn, http.StateIdle)
	case "asked":
		NoteRequest(conn, &http.Request{ProtoMajor: 2})
	default:
		NoteState(conn, http.StateNew)
	}
}

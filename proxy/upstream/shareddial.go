package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// dialPatience is how long a request waits for the connection that another one dials.
const dialPatience = 2 * time.Second

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// sharedDial sends requests over HTTP/2, and lets those that wait for a connection wait for one dial.
// net/http, which does not know yet that they can share a connection, dials for each of them, and
// throws away all connections but one: dozens after a GOAWAY.
//
//	A  getConn   dial ............ connected, A sends
//	B     getConn   dial: waits ...B is given A's connection, sends; its dial returns errServed to nobody
//
// If A's dial brings nothing that B can use, since it fails, takes longer than dialPatience, or the
// upstream speaks HTTP/1.1, B dials itself.
type sharedDial struct {
	next http.RoundTripper
	dial dialFunc

	mu sync.Mutex
	// underWay is the dial that others wait for: it is closed if they wait in vain. nil: there is none.
	underWay chan struct{}
}

// shareDials returns t with shared dials.
func shareDials(t *http.Transport) *sharedDial {
	s := &sharedDial{next: t, dial: t.DialContext}
	t.DialContext = s.dialContext
	return s
}

// RoundTrip implements [http.RoundTripper].
func (s *sharedDial) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &waits{}
	w.begin()
	defer w.end(nil)
	ctx := context.WithValue(r.Context(), waitsKey{}, w) // net/http dials with the values of the request's context
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.begin() },
		GotConn: func(got httptrace.GotConnInfo) {
			if conn, isTLS := got.Conn.(*tls.Conn); isTLS && conn.ConnectionState().NegotiatedProtocol == "h2" {
				w.end(errServed)
			} else {
				w.end(nil)
			}
		},
	})
	return s.next.RoundTrip(r.WithContext(ctx))
}

// dialContext dials for one request, or waits for the dial of another.
func (s *sharedDial) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w, ok := ctx.Value(waitsKey{}).(*waits)
	if !ok {
		return s.dial(ctx, network, address)
	}
	over := w.last.Load().over
	for patience := time.After(dialPatience); over.Err() == nil; {
		other, first := s.join()
		if first {
			context.AfterFunc(over, func() { s.leave(errors.Is(context.Cause(over), errServed)) })
			return s.dial(ctx, network, address)
		}
		select {
		case <-over.Done():
		case <-other:
		case <-patience:
			return s.dial(ctx, network, address)
		}
	}
	return nil, errServed
}

// join returns the dial under way. first: there was none, and the caller is to dial.
func (s *sharedDial) join() (underWay <-chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = s.underWay == nil; first {
		s.underWay = make(chan struct{})
	}
	return s.underWay, first
}

// leave ends the dial under way. shared: net/http gives its connection to all that wait.
func (s *sharedDial) leave(shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !shared {
		close(s.underWay)
	}
	s.underWay = nil
}

// errServed is why a request waits no more that has got a connection which others can use too.
var errServed = errors.New("a connection was found")

type waitsKey struct{}

// waits are the times that a request waits for a connection: again if the one ends that it was given.
type waits struct{ last atomic.Pointer[oneWait] }

type oneWait struct {
	over context.Context // when it is over; its cause says why
	end  context.CancelCauseFunc
}

func (w *waits) begin() {
	if last := w.last.Load(); last != nil && last.over.Err() == nil {
		return
	}
	over, end := context.WithCancelCause(context.Background())
	w.last.Store(&oneWait{over: over, end: end})
}

func (w *waits) end(why error) { w.last.Load().end(why) }

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

const (
	// dialPatience is how long a request waits for the dials of others.
	dialPatience = 2 * time.Second
	// dialSettle is how long after a handshake the next one may dial: by then net/http has given the new
	// connection to all that it has room for.
	dialSettle = 20 * time.Millisecond
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// sharedDial sends requests over HTTP/2, and lets those that wait for a connection dial one after
// another. net/http, which does not know yet that they can share a connection, dials for each of
// them, and throws away all connections but one: dozens after a GOAWAY.
//
//	A  dial ...... handshake done, A sends
//	B     waits .. net/http gives it A's connection, B sends; its dial returns errServed to nobody
//	C     waits .. A's connection has no room: C dials next
//
// If a dial fails, or its request is given up, the next one dials. A request that has waited for
// dialPatience dials out of turn. Nobody waits for a turn once the upstream was found to speak
// HTTP/1.1, where each request needs a connection of its own.
type sharedDial struct {
	next http.RoundTripper
	dial dialFunc
	// turn has a value while somebody dials.
	turn chan struct{}
	// alone: the upstream speaks HTTP/1.1, as far as is known.
	alone atomic.Bool
}

// shareDials returns t with shared dials.
func shareDials(t *http.Transport) *sharedDial {
	s := &sharedDial{next: t, dial: t.DialContext, turn: make(chan struct{}, 1)}
	t.DialContext = s.dialContext
	return s
}

// RoundTrip implements [http.RoundTripper].
func (s *sharedDial) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &waiter{}
	w.wait()
	defer w.end()
	ctx := context.WithValue(r.Context(), waiterKey{}, w) // net/http dials with the values of the request's context
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.wait() },
		GotConn: func(httptrace.GotConnInfo) { w.served() },
		TLSHandshakeDone: func(state tls.ConnectionState, err error) {
			shared := err == nil && state.NegotiatedProtocol == "h2"
			if err == nil {
				s.alone.Store(!shared)
			}
			w.dialed(shared)
		},
	})
	return s.next.RoundTrip(r.WithContext(ctx))
}

// dialContext dials for one request when it is its turn.
func (s *sharedDial) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w, ok := ctx.Value(waiterKey{}).(*waiter)
	if !ok || s.alone.Load() {
		return s.dial(ctx, network, address)
	}
	waiting := w.waiting()
	patience := time.NewTimer(dialPatience)
	defer patience.Stop()
	select {
	case <-waiting.Done():
		return nil, errServed
	case <-patience.C:
		return s.dial(ctx, network, address)
	case s.turn <- struct{}{}:
	}
	leave := sync.OnceFunc(func() { <-s.turn })
	if !w.take(waiting, leave) {
		leave()
		return nil, errServed
	}
	if s.alone.Load() { // as somebody has found meanwhile
		leave()
	}
	time.AfterFunc(dialPatience, leave)
	return s.dial(ctx, network, address)
}

// errServed is why a request that has got a connection dials no more.
var errServed = errors.New("a connection was found")

type waiterKey struct{}

// waiter is a request that may wait for a connection, more than once if the one ends that it was given.
type waiter struct {
	mu    sync.Mutex
	found context.Context // ends when there is a connection
	serve context.CancelFunc
	leave func() // ends its turn; nil: it had none
}

// wait notes that the request waits for a connection, unless it does already.
func (w *waiter) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found == nil || w.found.Err() != nil {
		w.found, w.serve = context.WithCancel(context.Background())
	}
}

func (w *waiter) waiting() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

func (w *waiter) served() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve()
}

// take notes that it is the request's turn, and what ends it. It returns false if the request does not
// wait any more.
func (w *waiter) take(waiting context.Context, leave func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting.Err() != nil {
		return false
	}
	w.leave = leave
	return true
}

// dialed ends the turn; a moment later, if others may be given the connection first.
func (w *waiter) dialed(shared bool) {
	w.mu.Lock()
	leave := w.leave
	w.mu.Unlock()
	switch {
	case leave == nil:
	case shared:
		time.AfterFunc(dialSettle, leave)
	default:
		leave()
	}
}

// end ends what is left when the request is over, also if its dial goes on.
func (w *waiter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve()
	if w.leave != nil {
		w.leave()
	}
}

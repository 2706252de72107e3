package server

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// maxWatchSpread and a quarter of all the time, whichever is less, is what the ends of watches are spread over
	// at most.
	maxWatchSpread = 5 * time.Second
	// lastFlush is time for what a handler that has returned leaves to the server to send: net/http takes an HTTP/2
	// connection for idle, and closes it, a moment before its last frames are sent.
	lastFlush = 250 * time.Millisecond
	// cutTime is how long what was cut may take to notice, to be counted and logged as what it was.
	cutTime = time.Second
)

// Drain ends a server of [New] in order. net/http's Shutdown waits for requests and does not know which of them
// end by themselves, nor of connections that were upgraded: a Drain has the watches ended first, gives all other
// requests time, execs and tunnels of port-forward among them, and then cuts what is left.
//
// It is safe for concurrent use.
type Drain struct {
	// LastFlush is how long the server has to send the rest of what handlers have left to it.
	LastFlush time.Duration

	server     *http.Server
	endWatches func(within time.Duration)
	cut        context.CancelFunc // ends all that still goes on

	running atomic.Int64  // handlers
	none    chan struct{} // holds one if running was 0 since it was last read
}

// NewDrain returns the Drain of a server that does not serve yet, whose handler and whose BaseContext it sets.
// endWatches begins to end the watches ([Forwarder.EndWatches]).
func NewDrain(server *http.Server, endWatches func(within time.Duration)) *Drain {
	base, cut := context.WithCancel(context.Background())
	d := &Drain{server: server, endWatches: endWatches, cut: cut, LastFlush: lastFlush, none: make(chan struct{}, 1)}
	server.BaseContext = func(net.Listener) context.Context { return base }
	server.Handler = d.counted(server.Handler)
	return d
}

// counted returns next, counted while it runs. It runs for as long as an upgraded connection is open.
func (d *Drain) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.running.Add(1)
		defer func() {
			if d.running.Add(-1) == 0 {
				select {
				case d.none <- struct{}{}:
				default:
				}
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// End ends the server: at once it accepts no connections and begins to end watches; when all requests have ended, at
// the latest after timeout, it closes all connections. It returns how many requests were cut by that, and whether it was
// a clean end: without a request cut, and without a connection cut that was in use, by a request that was still coming in
// or by the rest of an answer.
func (d *Drain) End(timeout time.Duration) (cut int64, clean bool) {
	defer d.cut()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// It closes the listeners, sends GOAWAY on every HTTP/2 connection, closes what is idle, and does not wait.
	over, stop := context.WithCancel(ctx)
	stop()
	_ = d.server.Shutdown(over)
	d.endWatches(min(timeout/4, maxWatchSpread))
	if d.awaitRequests(ctx) && d.awaitConnections(ctx) {
		return 0, true
	}
	cut = d.running.Load()
	d.cut() // upgraded connections, which Close does not know
	_ = d.server.Close()
	noticed, cancelNoticed := context.WithTimeout(context.Background(), cutTime)
	defer cancelNoticed()
	d.awaitRequests(noticed)
	return cut, false
}

// awaitConnections waits until the server has closed all its connections, and for requests that were still coming in
// on them.
func (d *Drain) awaitConnections(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d.LastFlush):
	}
	return d.server.Shutdown(ctx) == nil && d.awaitRequests(ctx)
}

// awaitRequests waits until no handler runs.
func (d *Drain) awaitRequests(ctx context.Context) bool {
	for d.running.Load() > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-d.none:
		}
	}
	return true
}

package serve

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// maxWatchSpread bounds the time over which the ends of watches are spread.
	maxWatchSpread = 5 * time.Second
	// flushPause is the pause between the end of the last handler and the closing of the connections that have become idle.
	// net/http counts an HTTP/2 connection as idle shortly before it sends the last frames of an answer. Without the pause they
	// would be lost.
	flushPause = 250 * time.Millisecond
	// cutOffTimeout bounds the time for which the handlers of requests that were cut off may go on. They record the end of
	// their requests in metrics and logs.
	cutOffTimeout = time.Second
	// drainPollInterval is the pause between two checks whether a handler still runs.
	drainPollInterval = 10 * time.Millisecond
)

// Drain shuts down a server of [New] gracefully. It ends the watches first. It gives all other requests time, exec and
// port-forward included, and then cuts off those that are left. (The Shutdown of net/http would wait for watches, which never
// end by themselves, and would not wait for upgraded connections.) Drain is safe for concurrent use.
type Drain struct {
	server     *http.Server
	endWatches func(spread time.Duration)
	cancelAll  context.CancelFunc // cancels the contexts of all requests

	running atomic.Int64 // the number of running handlers
}

// NewDrain returns the Drain of server, which must not serve yet: NewDrain sets its Handler and its BaseContext.
// endWatches begins to end all watches, spread over the given time.
func NewDrain(server *http.Server, endWatches func(spread time.Duration)) *Drain {
	base, cancelAll := context.WithCancel(context.Background())
	d := &Drain{server: server, endWatches: endWatches, cancelAll: cancelAll}
	server.BaseContext = func(net.Listener) context.Context { return base }
	server.Handler = d.countRunning(server.Handler)
	return d
}

// countRunning returns a handler that counts the running calls of next. A call with an upgraded connection runs until the
// connection is closed.
func (d *Drain) countRunning(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.running.Add(1)
		defer d.running.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// Shutdown shuts the server down:
//
//  1. The server stops listening, closes idle connections, and sends GOAWAY on HTTP/2 connections.
//  2. The watches begin to end.
//  3. All requests end, and then all connections.
//  4. If that takes longer than timeout, the requests that are left are cut off, and all connections are closed.
//
// cut is the number of requests that were cut off. clean reports whether all requests and connections have ended before
// timeout. If clean is false, cut may still be 0: a connection may have been closed while no handler ran, in the middle of an
// incoming request or of the last bytes of an answer.
func (d *Drain) Shutdown(timeout time.Duration) (cut int64, clean bool) {
	defer d.cancelAll()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	d.stopListening()
	d.endWatches(min(timeout/4, maxWatchSpread))
	if d.awaitRequests(ctx) && d.awaitConnections(ctx) {
		return 0, true
	}
	cut = d.running.Load()
	d.cutOff()
	return cut, false
}

// stopListening is the first step of Shutdown. It does not wait.
func (d *Drain) stopListening() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.server.Shutdown(ctx) // does not wait, since ctx has ended
}

// cutOff ends all requests, closes all connections, and waits at most cutOffTimeout until no handler runs.
func (d *Drain) cutOff() {
	// cancelAll also ends upgraded connections, which Close does not close. A connection whose client reads nothing stays until
	// the process ends.
	d.cancelAll()
	_ = d.server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), cutOffTimeout)
	defer cancel()
	d.awaitRequests(ctx)
}

// awaitConnections gives the server flushPause for its last frames. Then it waits until the server has closed all connections.
// Meanwhile, the rest of a request may have come in and started a handler, so it waits for the handlers again. It returns false
// if ctx ends first.
func (d *Drain) awaitConnections(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(flushPause):
	}
	return d.server.Shutdown(ctx) == nil && d.awaitRequests(ctx)
}

// awaitRequests waits until no handler runs. It returns false if ctx ends first.
func (d *Drain) awaitRequests(ctx context.Context) bool {
	noneRuns := func(context.Context) (bool, error) { return d.running.Load() == 0, nil }
	return wait.PollUntilContextCancel(ctx, drainPollInterval, true, noneRuns) == nil
}

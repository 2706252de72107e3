package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// endpointDialTimeout bounds the attempt to connect to one endpoint, before the next is tried.
	endpointDialTimeout = 5 * time.Second
	// endpointReturn is how long a new connection waits for a check to find that an endpoint has come
	// back, when those that were up have gone. Such checks begin within endpointAgain, and mostly take
	// milliseconds.
	endpointReturn = 3 * time.Second
)

// Use makes all clients of cfg connect to the endpoints.
func (e *Endpoints) Use(cfg *rest.Config) { cfg.Dial = e.dialContext }

// dialFunc connects to an address, host:port.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialContext connects to one of the endpoints, in place of the API server's address in the client
// configuration. It connects to nothing else.
func (e *Endpoints) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.EqualFold(address, e.address) {
		return nil, fmt.Errorf("a connection to %s is not one to the API servers", address)
	}
	begun := time.Now()
	for {
		candidates, more, checked := e.candidates()
		var errs []error
		for _, ep := range candidates {
			conn, err := e.connect(ctx, network, ep)
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
			ep.suspect()
			if ctx.Err() != nil {
				break
			}
		}
		// In the middle of a rolling restart, the endpoints that were up at the last check may have gone,
		// just after another one came back whose version is not known yet.
		left := endpointReturn - time.Since(begun)
		if more {
			e.CheckNow()
		}
		if !more || left <= 0 || !awaitCheck(ctx, checked, left) {
			return nil, errors.Join(errs...)
		}
	}
}

// candidates returns the endpoints to try, in that order: those that are up, or else all whose
// version was told. If there are more, checked is closed when a check of one has been noted.
func (e *Endpoints) candidates() (chosen []*endpoint, more bool, checked <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ep := range e.all {
		if ep.state == endpointUp {
			chosen = append(chosen, ep)
		}
	}
	if len(chosen) == 0 {
		chosen = slices.DeleteFunc(slices.Clone(e.all), func(ep *endpoint) bool { return ep.left })
	}
	rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] }) // #nosec G404 -- spreads connections
	return chosen, len(chosen) < len(e.all), e.checked
}

// connect connects to one endpoint, unless it was left out since it was chosen.
func (e *Endpoints) connect(ctx context.Context, network string, ep *endpoint) (net.Conn, error) {
	e.mu.Lock()
	if ep.left {
		e.mu.Unlock()
		return nil, fmt.Errorf("the API server at %s is not ready", ep.address)
	}
	ep.dialing++
	e.mu.Unlock()
	defer func() { // it is counted by then
		e.mu.Lock()
		defer e.mu.Unlock()
		ep.dialing--
	}()
	conn, err := e.dial(ctx, network, ep.address)
	if err != nil {
		return nil, err
	}
	return ep.conns.Track(ep.traffic.count(conn)), nil
}

// awaitCheck reports whether a check was noted within a time.
func awaitCheck(ctx context.Context, checked <-chan struct{}, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-checked:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func dialEndpoint(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: endpointDialTimeout, KeepAlive: keepAlive}).DialContext(ctx, network, address)
}

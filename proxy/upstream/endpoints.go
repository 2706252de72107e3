package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

const (
	// endpointEvery is the time between two checks of an endpoint, and up to a fifth more.
	endpointEvery = 2 * time.Second
	// endpointTimeout bounds one check. An API server that has much to do answers probes first
	// (they are exempt from its flow control), but needs time for the handshake.
	endpointTimeout = 4 * time.Second
	// endpointAgain is the pause after a check that failed, before it counts.
	endpointAgain = 500 * time.Millisecond
	// SlowestCheck is the longest time between two checks that return an endpoint's version, while the
	// endpoint can be reached. The first check that fails counts for nothing, and is repeated soon.
	SlowestCheck = endpointEvery + endpointEvery/5 + endpointTimeout + endpointAgain + endpointTimeout
	// SlowestNews is how long, at most, a reachable endpoint can have another version before listproxy
	// notices: an answer that is on its way may be from before the change.
	SlowestNews = endpointTimeout + SlowestCheck
)

// Endpoints are the addresses of the API servers of one cluster. It chooses among them when a
// connection is made, and nothing else: requests, credentials, and the name that the API servers'
// certificates must have stay those of the client configuration.
//
//   - Each endpoint is asked for /readyz and /version every few seconds, over a connection of its
//     own.
//   - New connections go to a random one of those that are up, and to the next if that one cannot
//     be reached. If none is up, all are tried.
//   - An endpoint that is not ready gets no new connections. Its open ones stay for some minutes:
//     kube-apiserver ends them itself when it shuts down. When there are none left, its version
//     does not count.
//   - An endpoint that answers no check in time gets no new connections either. Its open ones stay
//     for half a minute while something still comes on them: it may only have too much to do.
//   - The connections of an unreachable endpoint are closed, provided that another one is up. So
//     requests that wait for an answer fail, and watches are opened elsewhere, before HTTP/2
//     notices.
//   - An API server's version is reported before it counts as up. So everything that must happen
//     for another version is done when the first connection is made.
//
// An HTTP/2 connection stays with its API server for all requests on it, as behind a balancer.
// It is safe for concurrent use.
type Endpoints struct {
	address string // of the client configuration, host:port: the one that may be asked for
	all     []*endpoint
	dial    dialFunc
	log     *slog.Logger

	// checked is closed, and replaced, when a check has been noted. mu guards it.
	checked chan struct{}

	// telling is held while versions are reported, so that they are reported in order.
	telling sync.Mutex
	mu      sync.Mutex // guards what the endpoints say
	// ready and versions say whether /readyz and /version of any endpoint could be read before. A
	// kube-apiserver that has just started and has not read the RBAC objects yet refuses everything
	// (403).
	ready, versions bool
}

// endpoint is one API server, or a load balancer in front of some.
type endpoint struct {
	address string  // host:port
	prober  *Prober // which connects to it only, and verifies the name that the client configuration has
	conns   *connrotation.ConnectionTracker
	traffic *endpointTraffic
	// suspected gets a value when a connection could not be made.
	suspected chan struct{}

	// Endpoints.mu guards these.
	state    endpointState
	since    time.Time     // when state began
	unready  time.Time     // since when it is not ready; zero: it was up, or unreachable, after that
	failures int           // checks that failed, one after the other
	failing  time.Time     // when the first of them began
	failed   time.Time     // when the last of them began
	said     *version.Info // nil: not known
	last     *version.Info // the last that was known; nil: none was
	problem  error         // why the last check did not find it up
	dialing  int           // connections that are being made
	left     bool          // it was left out of the versions that were told, so no connection is made
}

// NewEndpoints returns the endpoints at the addresses, which [ParseEndpoints] returned, of the
// cluster that cfg is for. cfg has the proxy's own credentials, with which the endpoints are
// checked.
func NewEndpoints(cfg *rest.Config, addresses []string, log *slog.Logger) (*Endpoints, error) {
	return newDialedEndpoints(cfg, addresses, dialEndpoint, log)
}

// newDialedEndpoints is NewEndpoints with a choice of network.
func newDialedEndpoints(cfg *rest.Config, addresses []string, dial dialFunc, log *slog.Logger) (*Endpoints, error) {
	base, err := Base(cfg)
	if err != nil {
		return nil, err
	}
	if err := reachedDirectly(cfg, base); err != nil {
		return nil, err
	}
	e := &Endpoints{address: hostPort(base), dial: dial, log: log, checked: make(chan struct{})}
	for _, address := range addresses {
		ep := &endpoint{
			address: address, state: endpointUnknown, since: time.Now(),
			conns: connrotation.NewConnectionTracker(), traffic: newEndpointTraffic(), suspected: make(chan struct{}, 1),
		}
		own := rest.CopyConfig(cfg)
		own.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, address) }
		if ep.prober, err = NewProber(own, endpointTimeout); err != nil {
			return nil, fmt.Errorf("cannot check the API server at %s: %w", address, err)
		}
		e.all = append(e.all, ep)
	}
	return e, nil
}

// suspect makes the endpoint be checked now.
func (ep *endpoint) suspect() {
	select {
	case ep.suspected <- struct{}{}:
	default: // it will be
	}
}

// rest waits for the next check. If a connection could not be made, the check comes sooner, but not
// at once, since that can happen often.
func (ep *endpoint) rest(ctx context.Context, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-ep.suspected:
		select {
		case <-ctx.Done():
		case <-time.After(endpointAgain):
		}
	}
}

// CheckNow makes all endpoints be checked now.
func (e *Endpoints) CheckNow() {
	for _, ep := range e.all {
		ep.suspect()
	}
}

// Checked says whether every endpoint has been checked.
func (e *Endpoints) Checked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !slices.ContainsFunc(e.all, func(ep *endpoint) bool { return ep.state == endpointUnknown })
}

// Run checks the endpoints until ctx ends. After each check it calls heard with the versions of all
// that are not known to be unreachable, each once: one call at a time.
func (e *Endpoints) Run(ctx context.Context, heard func([]version.Info)) {
	var checking sync.WaitGroup
	for _, ep := range e.all {
		checking.Go(func() {
			for ctx.Err() == nil {
				result := ep.check(ctx)
				if ctx.Err() != nil {
					return
				}
				pause := wait.Jitter(endpointEvery, 0.2)
				if e.take(ep, result, heard) {
					pause = endpointAgain
				}
				ep.rest(ctx, pause)
			}
		})
	}
	checking.Wait()
}

// take records the result of a check, and reports whether the check has to be repeated before it
// counts.
func (e *Endpoints) take(ep *endpoint, result checkResult, heard func([]version.Info)) (again bool) {
	e.telling.Lock()
	defer e.telling.Unlock()

	e.mu.Lock()
	ep.problem = result.err
	if result.state == endpointUnreachable {
		if result.state, again = afterFailure(ep.state, ep.failLocked(result)); again {
			e.mu.Unlock()
			return true
		}
	} else {
		ep.failures = 0
		result = e.judgeLocked(result)
		ep.problem = result.err
	}
	if result.state != endpointSlow { // what has connections has a version
		ep.said = result.said
	}
	if ep.said != nil {
		ep.last = ep.said
	}
	before := ep.state
	if result.state != endpointUp {
		ep.enterLocked(result.state) // no connection more
	}
	out := e.leaveOutLocked(ep, result.state)
	said := e.versionsLocked(ep, result.state, out)
	e.mu.Unlock()

	heard(said)

	e.mu.Lock()
	for _, other := range e.all {
		other.left = slices.Contains(out, other)
	}
	ep.enterLocked(result.state)
	unready := time.Duration(0)
	if !ep.unready.IsZero() {
		unready = time.Since(ep.unready)
	}
	anotherUp := slices.ContainsFunc(e.all, func(other *endpoint) bool { return other != ep && other.state == endpointUp })
	close(e.checked)
	e.checked = make(chan struct{})
	e.mu.Unlock()
	if toLeave(result.state, unready, anotherUp) {
		ep.conns.CloseAll()
	}
	e.tell(ep.address, before, result)
	return false
}

// failLocked counts a check that failed.
func (ep *endpoint) failLocked(result checkResult) failedChecks {
	if ep.failures == 0 {
		ep.failing, ep.failed = result.began, result.began
	}
	ep.failures++
	failed := failedChecks{
		count: ep.failures, late: result.late, heard: ep.traffic.heardSince(ep.failed), lasting: time.Since(ep.failing),
	}
	ep.failed = result.began
	return failed
}

// enterLocked sets the state, and when it began. An endpoint that was not ready and becomes slow
// still counts as not ready since then.
func (ep *endpoint) enterLocked(state endpointState) {
	now := time.Now()
	if ep.state != state {
		ep.state, ep.since = state, now
	}
	switch {
	case state == endpointUp || state == endpointUnreachable:
		ep.unready = time.Time{}
	case state == endpointNotReady && ep.unready.IsZero():
		ep.unready = now
	}
}

// judgeLocked compares a result with what could be read before, from this endpoint or another: an
// endpoint that refuses something that was readable is not ready.
func (e *Endpoints) judgeLocked(result checkResult) checkResult {
	e.ready = e.ready || result.state == endpointUp && !result.refused
	e.versions = e.versions || result.said != nil
	switch {
	case result.state != endpointUp:
	case result.refused && e.ready:
		result.state, result.err = endpointNotReady, errors.New("/readyz may not be read, though it could be before: "+
			"it may not know all rights yet")
	case result.said == nil && e.versions:
		result.state, result.err = endpointNotReady, errors.New("/version cannot be read, though it could be before")
	}
	return result
}

// stateLocked returns the state of other, assuming that ep is in the given state.
func stateLocked(other, ep *endpoint, state endpointState) endpointState {
	if other == ep {
		return state
	}
	return other.state
}

// anyUpLocked says whether an endpoint is up, assuming that ep is in the given state.
func (e *Endpoints) anyUpLocked(ep *endpoint, state endpointState) bool {
	return slices.ContainsFunc(e.all, func(other *endpoint) bool { return stateLocked(other, ep, state) == endpointUp })
}

// leaveOutLocked returns the endpoints whose versions do not count, assuming that ep is in the
// given state. From then on no connection is made to them, so none of them answers anything until
// its version counts again and was reported.
func (e *Endpoints) leaveOutLocked(ep *endpoint, state endpointState) (out []*endpoint) {
	up := e.anyUpLocked(ep, state)
	for _, other := range e.all {
		if toLeaveOut(stateLocked(other, ep, state), int64(other.dialing)+other.traffic.open.Load(), up) {
			other.left = true
			out = append(out, other)
		}
	}
	return out
}

// versionsLocked returns the versions of all endpoints that are neither unreachable nor in out,
// assuming that ep is in the given state. If none is up, connections to all of them are tried, and
// may succeed before a check does: then the last known versions of the others are returned, too.
func (e *Endpoints) versionsLocked(ep *endpoint, state endpointState, out []*endpoint) []version.Info {
	up := e.anyUpLocked(ep, state)
	var said []version.Info
	for _, other := range e.all {
		its := other.said
		switch {
		case !up:
			its = other.last
		case stateLocked(other, ep, state) == endpointUnreachable, slices.Contains(out, other):
			its = nil
		}
		if its != nil && !slices.Contains(said, *its) {
			said = append(said, *its)
		}
	}
	return said
}

// tell logs the one line about a change.
func (e *Endpoints) tell(address string, before endpointState, result checkResult) {
	log, line := e.log.With("endpoint", address, "state", string(result.state)), endpointWords[result.state].line
	switch {
	case before == result.state:
	case result.state == endpointUp:
		log.Info(line, "version", result.version())
	default:
		log.Warn(line, "error", result.err)
	}
}

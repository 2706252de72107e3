package upstream

import "time"

const (
	// endpointFailures is how many checks have to fail, one after the other, before they count for
	// an endpoint that was not unreachable before.
	endpointFailures = 2
	// endpointPatience is how long an endpoint that answers no check in time keeps its connections
	// because something still comes on them. client-go waits as long on a silent connection before it
	// sends a ping (HTTP/2's read idle timeout, k8s.io/apimachinery/pkg/util/net). An API server that
	// is only busy has answered a check by then; one that has not would leave most callers without an
	// answer.
	endpointPatience = 30 * time.Second
	// endpointLinger is for how long an endpoint that is not ready keeps the connections that it
	// has. kube-apiserver may need that long to shut down (--shutdown-delay-duration, and then
	// requests in flight). A server that is not ready for longer is not shutting down, but cannot do
	// its work: it may have lost its etcd.
	endpointLinger = 3 * time.Minute
)

// endpointState is the state of an endpoint by its last checks.
type endpointState string

const (
	endpointUnknown     endpointState = "unknown"     // not checked yet
	endpointUp          endpointState = "up"          // new connections go there
	endpointNotReady    endpointState = "not-ready"   // it answers, and says that it is not ready
	endpointSlow        endpointState = "slow"        // it answers no check in time, and yet is alive
	endpointUnreachable endpointState = "unreachable" // it does not answer, or is not who it should be
)

// endpointWords is what is said of each state: its meaning in plain words, and the log's line when it
// begins.
var endpointWords = map[endpointState]struct{ meaning, line string }{
	endpointUnknown:  {meaning: "not checked yet"},
	endpointUp:       {"up", "an API server is up: connections go there"},
	endpointNotReady: {"not ready", "an API server is not ready: no new connections go there"},
	endpointSlow: {
		"alive, but too slow",
		"an API server answers checks too late, but connections to it are alive: they stay for a while, and no new ones go there",
	},
	endpointUnreachable: {
		"down",
		"an API server cannot be reached: no connections go there, and those that were there are closed if another one is up",
	},
}

// failedChecks are checks of an endpoint that failed, one after the other, the last one just now.
type failedChecks struct {
	count int
	// late: the last one failed because its answer did not come in time. If not late, something else
	// came: a refusal or a reset of the connection, or a wrong certificate.
	late bool
	// heard: something was read on a connection to the endpoint (an answer, an event, or the pong of a
	// quiet connection) since the last check but one began; after a single check, since that one
	// began. TCP acknowledgements do not count: a kernel sends them even for a process that hangs.
	heard bool
	// lasting is the time since the first one began.
	lasting time.Duration
}

// afterFailure returns the state of an endpoint after checks that failed, given the state before,
// and whether it has to be checked once more before they count. That checks are late does not prove
// that the endpoint is dead: if it only has too much to do, reconnecting all clients would make
// that worse.
func afterFailure(before endpointState, f failedChecks) (state endpointState, again bool) {
	switch {
	case before == endpointUnreachable: // until it has answered
		return endpointUnreachable, false
	case before != endpointUnknown && f.count < endpointFailures:
		return before, true
	case f.late && f.heard && f.lasting < endpointPatience:
		return endpointSlow, false
	}
	return endpointUnreachable, false
}

// toLeave says whether the connections of an endpoint are closed. unready is how long it has been
// not ready, if it is; elsewhere says that another endpoint is up.
func toLeave(state endpointState, unready time.Duration, elsewhere bool) bool {
	switch state {
	case endpointUnreachable:
		return elsewhere
	case endpointNotReady:
		return elsewhere && unready >= endpointLinger
	}
	return false
}

// toLeaveOut says whether the version of an endpoint is ignored. It is if no request can reach the
// endpoint: it is not ready, another one is up (elsewhere), and no connection to it is open or being
// made. Otherwise an endpoint that never becomes ready would count as another version for ever.
func toLeaveOut(state endpointState, connections int64, elsewhere bool) bool {
	return state == endpointNotReady && connections == 0 && elsewhere
}

package upstream

import "time"

const (
	// endpointFailures is how many checks have to fail, one after the other, before they count for
	// an endpoint that was not unreachable before.
	endpointFailures = 2
	// endpointPatience is for how long an endpoint that answers no check in time keeps its
	// connections because something still comes on them. It is as long as client-go lets a
	// connection be silent before it doubts it (HTTP/2's read idle timeout,
	// k8s.io/apimachinery/pkg/util/net). An API server that is only busy has answered some check by
	// then; at one that has not, callers wait in vain for most answers.
	endpointPatience = 30 * time.Second
	// endpointLinger is for how long an endpoint that is not ready keeps the connections that it
	// has. kube-apiserver needs as long to shut down (--shutdown-delay-duration, and what is in
	// flight); what is not ready for longer does not shut down, but cannot do its work: it has lost
	// its etcd, say.
	endpointLinger = 3 * time.Minute
)

// endpointState is what the last checks of an endpoint said.
type endpointState string

const (
	endpointUnknown     endpointState = "unknown"     // not checked yet
	endpointUp          endpointState = "up"          // new connections go there
	endpointNotReady    endpointState = "not-ready"   // it answers, and says that it is not ready
	endpointSlow        endpointState = "slow"        // it answers no check in time, and yet is alive
	endpointUnreachable endpointState = "unreachable" // it does not answer, or is not who it should be
)

// failedChecks are checks of an endpoint that failed, one after the other, the last one just now.
type failedChecks struct {
	count int
	// late: the last one failed because its answer did not come in time. Else something came that
	// is none: a refusal or a reset of the connection, or the certificate of somebody else.
	late bool
	// heard: something was read on a connection to the endpoint since the check before the last one
	// began, or since the only one did: an answer, an event, the pong of a connection that was
	// quiet. What an operating system acknowledges for a process that stands still is not read.
	heard bool
	// lasting is the time since the first one began.
	lasting time.Duration
}

// afterFailure returns what an endpoint is whose checks failed, and was something else before, and
// whether it has to be checked once more before they count. That checks are late is no evidence of
// death: to an API server that has too much to do, clients who all come again are the last straw.
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

// toLeave says whether the connections of an endpoint, which has been not ready for so long if it
// is that, are closed. Elsewhere: another endpoint is up.
func toLeave(state endpointState, unready time.Duration, elsewhere bool) bool {
	switch state {
	case endpointUnreachable:
		return elsewhere
	case endpointNotReady:
		return elsewhere && unready >= endpointLinger
	case endpointUnknown, endpointUp, endpointSlow:
	}
	return false
}

// toLeaveOut says whether the version of an endpoint does not count: nothing can be asked there,
// since it is not ready, another one is up (elsewhere), and no connection to it is open or being
// made. One that never becomes ready would else be another version for ever.
func toLeaveOut(state endpointState, connections int64, elsewhere bool) bool {
	return state == endpointNotReady && connections == 0 && elsewhere
}

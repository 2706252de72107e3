package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// backoffs give the pauses before the next session.
type backoffs struct {
	retries   wait.Backoff // after a failure that a retry is likely to cure
	unlikely  wait.Backoff // after a failure that a retry is unlikely to cure
	refusals  wait.Backoff // after a 403
	overflows wait.Backoff // after a state that does not fit
	doubts    wait.Backoff // after errUnproven
}

const (
	// unlikelyRetry is the shortest pause after a failure that a retry is unlikely to cure.
	unlikelyRetry = 2 * time.Minute
	// maxOverflowPause bounds the pause after a state that did not fit.
	maxOverflowPause = 40 * time.Minute
	// maxDoubtPause bounds the pause after errUnproven.
	maxDoubtPause = 2 * time.Minute
	// stableAfter is the age of a state at which the backoffs overflows and doubts begin anew.
	stableAfter = maxOverflowPause
	// refusalGrace is the duration for which a state is kept after a 403. An API server that has just started refuses
	// everybody until it has read its roles, which takes less time.
	refusalGrace = 15 * time.Second
)

// initialBackoffs are the backoffs of a new feed, which takes a copy.
var initialBackoffs = backoffs{
	retries:  wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 20 * time.Second},
	unlikely: wait.Backoff{Duration: unlikelyRetry, Jitter: 1}, // does not grow
	// An account that lacks a right seldom gets it soon.
	refusals: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: unlikelyRetry},
	// A load that does not fit may cost the upstream most of a whole list.
	overflows: wait.Backoff{Duration: unlikelyRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxOverflowPause},
	// Streams may break again and again, and a load must not follow each break.
	doubts: wait.Backoff{Duration: time.Second, Factor: 4, Jitter: 0.5, Steps: 10, Cap: maxDoubtPause},
}

package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// backoffs give the pauses before the next session, by the failure of the last one.
type backoffs struct {
	retry     wait.Backoff // after a failure that is likely to be over soon
	lasting   wait.Backoff // after a failure that is likely to last
	forbidden wait.Backoff // after a 403
	full      wait.Backoff // after errFull: a state does not fit into the budget
	unproven  wait.Backoff // after errUnproven: the upstream may have another timeline
}

const (
	// lastingPause is the shortest pause after a failure that is likely to last.
	lastingPause = 2 * time.Minute
	// maxFullPause bounds the pause after errFull.
	maxFullPause = 40 * time.Minute
	// maxUnprovenPause bounds the pause after errUnproven.
	maxUnprovenPause = 2 * time.Minute
	// stableAfter is the time after which a loaded state counts as stable, so that the backoffs full and unproven begin anew.
	// It is as long as their longest pause without the jitter.
	stableAfter = maxFullPause
	// refusalGrace is the duration for which a state is kept after the first 403. An API server that has just started answers
	// 403 to everybody until it has read its roles. That takes less than refusalGrace.
	refusalGrace = 15 * time.Second
)

// initialBackoffs are the backoffs of a new feed, which takes a copy.
var initialBackoffs = backoffs{
	retry:   wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 20 * time.Second},
	lasting: wait.Backoff{Duration: lastingPause, Jitter: 1}, // does not grow
	// An account that lacks a right seldom gets it soon.
	forbidden: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastingPause},
	// A load that does not fit may cost the upstream most of a whole list.
	full: wait.Backoff{Duration: lastingPause, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxFullPause},
	// Only a load helps then. If streams break again and again, a load must not follow each break.
	unproven: wait.Backoff{Duration: time.Second, Factor: 4, Jitter: 0.5, Steps: 10, Cap: maxUnprovenPause},
}

package attacks

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// A record is an attack that was sent to both servers. testAudit compares what kube-apiserver's audit log says of the two
// attempts.
type record struct {
	name       string
	directID   string // the number of the attack that was sent to kube-apiserver directly
	proxiedID  string // the number of the attack that was sent through listproxy
	verdict    verdict
	fromMemory bool // listproxy answered the attack from memory
	// answeredFollower means that listproxy itself answered the follower, the innocent request after the attack. kube-apiserver
	// cannot have got it.
	answeredFollower bool
	// mayBeRefused means that listproxy may have refused requests that kube-apiserver got directly.
	mayBeRefused bool
	// interrupted means that through listproxy a stream was reset or the connection ended early. kube-apiserver may not have
	// got the attack's request.
	interrupted bool
}

// records has a record of each attack that was sent.
var records struct {
	sync.Mutex
	all []record
}

const (
	// auditInterval is the time between two readings of the audit log, until the log is complete.
	auditInterval = 500 * time.Millisecond
	// auditPatience ends the wait for a complete log. One reading takes seconds, and more on a busy machine.
	auditPatience = 5 * time.Minute
)

// testAudit requires for each attack that kube-apiserver's audit log says the same of the attempt that came directly and of the
// one that came through listproxy.
func testAudit(t *testing.T) {
	records.Lock()
	defer records.Unlock()
	// kube-apiserver may write an event after the client has read the answer, so the log is read until it is complete.
	expect.NoError(t, poll.Try(t.Context(), auditPatience, auditInterval, "the audit log is the same for both", func() error {
		seen, err := audit.read()
		if err != nil {
			return err
		}
		var differences []error
		for _, r := range records.all {
			if d := r.auditDiff(seen); d != "" {
				differences = append(differences, errors.New(r.name+":\n"+d))
			}
		}
		return errors.Join(differences...)
	}))
}

// auditDiff compares the accounts of the attack in the audit log: one account for each request that kube-apiserver got. It
// returns how those of the attempt through listproxy differ from what they must be, or "".
func (r record) auditDiff(seen map[string]accounts) string {
	for _, address := range seen[r.proxiedID].addresses {
		if address != "127.0.0.1" {
			return "kube-apiserver believes that the attack came from " + address
		}
	}
	got := withoutRepeats(seen[r.proxiedID].completed)
	if r.verdict != answeredAsUpstream {
		return diffAccounts(nil, exclude(got, isFollower)) // of a refused attack only the follower may arrive
	}
	sentDirectly := seen[r.directID].completed
	hasDirectFollower := slices.ContainsFunc(sentDirectly, isFollower)
	isUncertain := func(a account) bool { return r.isUncertain(a, hasDirectFollower) }
	return diffAccounts(exclude(r.expected(sentDirectly, got), isUncertain), exclude(got, isUncertain))
}

// isUncertain reports whether it depends on chance that kube-apiserver got a request. The audit log may have this request of
// one attempt and not of the other. hasDirectFollower means that the log has the follower of the direct attempt.
func (r record) isUncertain(a account, hasDirectFollower bool) bool {
	if isFollower(a) {
		// kube-apiserver may have ended the direct connection before it read the follower. It would have refused the follower.
		hasRefusal := a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden
		return hasRefusal && !hasDirectFollower
	}
	return isAttack(a) && r.interrupted
}

// expected returns the accounts that the audit log must have of the attempt through listproxy. They are those of the direct
// attempt (sentDirectly) without two sorts of requests: those that listproxy answered itself and, if listproxy may have refused
// requests, those that did not arrive. got has the requests that arrived.
func (r record) expected(sentDirectly, got []account) []account {
	answeredByListproxy := func(a account) bool {
		if isFollower(a) {
			return r.answeredFollower
		}
		return isAttack(a) && r.fromMemory
	}
	mayBeMissing := r.mayBeRefused && !r.fromMemory
	return exclude(sentDirectly, func(a account) bool {
		hasArrived := slices.ContainsFunc(got, func(b account) bool { return gocmp.Equal(a, b) })
		return answeredByListproxy(a) || (mayBeMissing && !hasArrived)
	})
}

// diffAccounts returns how got differs from want, or "".
func diffAccounts(want, got []account) string { return gocmp.Diff(want, got, cmpopts.EquateEmpty()) }

// exclude returns the accounts for which isExcluded is false.
func exclude(all []account, isExcluded func(account) bool) []account {
	return slices.DeleteFunc(slices.Clone(all), isExcluded)
}

// isAttack and isFollower report whether an account is of the attack itself, or of the follower. A request that was smuggled in
// is neither.
func isAttack(a account) bool   { return a.ID == "1" }
func isFollower(a account) bool { return a.ID == "follower" }

// withoutRepeats returns the accounts with one of each repeated read. listproxy sends a read again if another attack has ended
// the connection to kube-apiserver, which logs the first one as timed out.
func withoutRepeats(all []account) []account {
	return slices.CompactFunc(slices.Clone(all), func(a, b account) bool {
		return a.Code == http.StatusGatewayTimeout && gocmp.Equal(a, b)
	})
}

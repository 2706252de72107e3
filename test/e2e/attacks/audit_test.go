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

// A record is an attack that was sent to both servers, for the comparison of the audit log.
type record struct {
	name       string
	directID   string // the attack's number, as it was sent to kube-apiserver directly
	proxiedID  string // the attack's number, as it was sent through listproxy
	verdict    verdict
	fromMemory bool // listproxy answered the attack from memory
	// answeredFollower means that listproxy itself answered the follower, which kube-apiserver cannot have got.
	answeredFollower bool
	// mayBeRefused means that listproxy may have refused requests that kube-apiserver got directly.
	mayBeRefused bool
	// interrupted means that a stream was reset or the connection ended, so that kube-apiserver may not have got the attack's
	// request.
	interrupted bool
}

// records are those of all attacks.
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

// testAudit requires that kube-apiserver's audit log has the same of each attack that came directly and through listproxy.
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

// auditDiff returns how kube-apiserver's accounts of the attack through listproxy differ from those that are expected, or "".
func (r record) auditDiff(seen map[string]accounts) string {
	for _, address := range seen[r.proxiedID].addresses {
		if address != "127.0.0.1" {
			return "kube-apiserver believes that the attack came from " + address
		}
	}
	got := withoutRepeats(seen[r.proxiedID].completed)
	if r.verdict != answeredAsUpstream { // only the follower of a refused attack may arrive
		return diffAccounts(nil, exclude(got, isFollower))
	}
	sentDirectly := seen[r.directID].completed
	hasDirectFollower := slices.ContainsFunc(sentDirectly, isFollower)
	isUncertain := func(a account) bool { return r.isUncertain(a, hasDirectFollower) }
	return diffAccounts(exclude(r.expected(sentDirectly, got), isUncertain), exclude(got, isUncertain))
}

// isUncertain reports whether chance decides if kube-apiserver got a request, either directly or through listproxy.
func (r record) isUncertain(a account, hasDirectFollower bool) bool {
	if isFollower(a) {
		// kube-apiserver may have ended the direct connection before the follower, which it would have refused.
		hasRefusal := a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden
		return hasRefusal && !hasDirectFollower
	}
	return isAttack(a) && r.interrupted
}

// expected returns the accounts that kube-apiserver must have of the attack through listproxy: those of the direct attack, except
// for requests that listproxy answered itself. If listproxy may have refused requests, those that have not arrived are excepted, too.
func (r record) expected(sentDirectly, got []account) []account {
	isAnswered := func(a account) bool {
		if isFollower(a) {
			return r.answeredFollower
		}
		return isAttack(a) && r.fromMemory
	}
	mayBeMissing := r.mayBeRefused && !r.fromMemory
	return exclude(sentDirectly, func(a account) bool {
		hasArrived := slices.ContainsFunc(got, func(b account) bool { return gocmp.Equal(a, b) })
		return isAnswered(a) || (mayBeMissing && !hasArrived)
	})
}

func diffAccounts(want, got []account) string { return gocmp.Diff(want, got, cmpopts.EquateEmpty()) }

// exclude returns the accounts for which isExcluded is false.
func exclude(all []account, isExcluded func(account) bool) []account {
	return slices.DeleteFunc(slices.Clone(all), isExcluded)
}

// isAttack and isFollower tell the requests of an attack apart.
func isAttack(a account) bool   { return a.ID == "1" }
func isFollower(a account) bool { return a.ID == "follower" }

// withoutRepeats returns the accounts with one of each repeated read. listproxy sends a read again if another attack has ended
// the connection to kube-apiserver, which logs the first one as timed out.
func withoutRepeats(all []account) []account {
	return slices.CompactFunc(slices.Clone(all), func(a, b account) bool {
		return a.Code == http.StatusGatewayTimeout && gocmp.Equal(a, b)
	})
}

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
	name            string
	directID, viaID string // of the tries
	verdict         verdict
	hit             bool
	// mayMiss reports that listproxy may have refused what kube-apiserver got directly.
	mayMiss bool
	// followerNotArrived reports that kube-apiserver cannot have got the follower through listproxy.
	followerNotArrived bool
	// mayBeCancelled reports that a stream was reset or the connection ended, so that kube-apiserver may not have got the
	// attack's request.
	mayBeCancelled bool
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
		for _, r := range records.all {
			if d := r.auditDiff(seen); d != "" {
				err = errors.Join(err, errors.New(r.name+":\n"+d))
			}
		}
		return err
	}))
}

// auditDiff returns how kube-apiserver's accounts of the attack through listproxy differ from those of the direct one, or "".
// Both must have the same requests, but for those that listproxy did not send on, and those that may be missing or repeated
// because of a broken connection.
func (r record) auditDiff(seen map[string]accounts) string {
	for _, address := range seen[r.viaID].addresses {
		if address != "127.0.0.1" {
			return "kube-apiserver believes that the attack came from " + address
		}
	}
	want := slices.Clone(seen[r.directID].completed)
	got := withoutRepeats(seen[r.viaID].completed)
	if r.mayBeCancelled && r.verdict == answeredAsUpstream { // a refused attack must not arrive in any case
		want = slices.DeleteFunc(want, isAttack)
		got = slices.DeleteFunc(got, isAttack)
	}
	if !slices.ContainsFunc(want, isFollower) {
		// kube-apiserver may have ended the direct connection before the follower. Then the follower may have come through
		// listproxy alone, if it was refused.
		got = slices.DeleteFunc(got, isRefusedFollower)
	}
	if r.followerNotArrived {
		want = slices.DeleteFunc(want, isFollower)
	}
	switch {
	case r.verdict != answeredAsUpstream: // only the follower may have arrived
		want = slices.DeleteFunc(slices.Clone(got), func(a account) bool { return !isFollower(a) })
	case r.hit:
		want = slices.DeleteFunc(want, isAttack)
	case r.mayMiss:
		arrived := func(a account) bool {
			return slices.ContainsFunc(got, func(b account) bool { return gocmp.Equal(a, b) })
		}
		want = slices.DeleteFunc(want, func(a account) bool { return !arrived(a) })
	}
	return gocmp.Diff(want, got, cmpopts.EquateEmpty())
}

// isAttack and isFollower tell the requests of an attack apart.
func isAttack(a account) bool   { return a.ID == "1" }
func isFollower(a account) bool { return a.ID == "follower" }

func isRefusedFollower(a account) bool {
	return isFollower(a) && (a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden)
}

// withoutRepeats returns the accounts without those of reads that listproxy sent once more, since another attack had ended
// the connection to kube-apiserver: kube-apiserver logs the first as timed out.
func withoutRepeats(all []account) []account {
	return slices.CompactFunc(slices.Clone(all), func(a, b account) bool {
		return a.Code == http.StatusGatewayTimeout && gocmp.Equal(a, b)
	})
}

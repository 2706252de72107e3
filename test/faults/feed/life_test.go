package feed

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// slack is how much later than the bound an answer from a silent feed may be asked for: what was
// on its way when the feed went silent, may still be heard then.
const slack = time.Second

// Rule 5: a token of the feed that is not valid any more shows within the bound, although the
// API server lets the feed's watches go on.
func TestRevokedToken(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k := podTemplates
	token, _ := feedAccount(t, "revoked-token")
	r := newRig(t, shared, rigOptions{token: token, bound: shortestBound})
	ns := r.namespace(t, "revoked")
	list := k.Path(ns)
	r.create(t, k, ns, "first")
	r.await(hitAny, list, anyVersion())
	known := r.touch(t, k, ns, "first", "once")
	r.await(hitNotOlderThan, list, notOlderThan(known))

	accounts := kind{APIVersion: "v1", Plural: "serviceaccounts"}
	r.remove(t, accounts, controlplane.TeamA, "revoked-token")
	// The API server itself believes a token for ten seconds after it has seen it.
	var refused time.Time
	r.until("the API server refusing the token", func() error {
		cfg := r.RESTConfig(controlplane.Feed)
		cfg.BearerToken = token
		c, err := ask.New(cfg, patience)
		if err != nil {
			return err
		}
		a, err := c.Get(t.Context(), list+"?limit=1")
		if err == nil && a.Code != http.StatusUnauthorized {
			err = fmt.Errorf("it still answers %d", a.Code)
		}
		refused = time.Now()
		return err
	})
	last := r.lastHit(list)
	// A watch that was let in before goes on to its end, and so may its signs of life: the short
	// one that a quiet feed opens lasts three seconds.
	const goesOn = 3 * time.Second
	if late := last.Sub(refused); late > goesOn+shortestBound+slack {
		t.Errorf("an answer from memory %v after the feed's token was refused", late)
	}
	r.expect(fwdStale, list, anyVersion())
	r.expect(fwdNotProven, list, exactly(known))
	missed := r.create(t, k, ns, "missed")
	r.expect(fwdStale, list, notOlderThan(missed))
}

// Rule 5 and 11: a feed that is forbidden says so.
func TestRevokedRights(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k := revisions
	token, revoke := feedAccount(t, "revoked-rights")
	r := newRig(t, shared, rigOptions{token: token, bound: shortestBound})
	ns := r.namespace(t, "forbidden")
	list := k.Path(ns)
	r.create(t, k, ns, "first")
	r.await(hitAny, list, anyVersion())
	known := r.touch(t, k, ns, "first", "once")
	r.await(hitNotOlderThan, list, notOlderThan(known))

	expect.NoError(t, revoke(t.Context()))
	r.await(fwdNotPermitted, list, anyVersion())
	r.expect(fwdNotPermitted, list, notOlderThan(known))
	r.expect(fwdNotPermitted, list, exactly(known)) // what may not be read any more is not kept either
	// Nor is a collection that nobody asked for before.
	r.create(t, limitRanges, ns, "first")
	r.await(fwdNotPermitted, limitRanges.Path(ns), anyVersion())
}

// feedAccount makes a service account with the feed's rights, and returns a token for it and what
// takes its rights away.
func feedAccount(t *testing.T, name string) (token string, revoke func(context.Context) error) {
	t.Helper()
	token, err := shared.CreateServiceAccountToken(t.Context(), controlplane.TeamA, name)
	expect.NoError(t, err)
	revoke, err = shared.Grant(t.Context(), controlplane.Grant{To: []string{controlplane.TeamA + "/" + name}, Role: "listproxy-feed"})
	expect.NoError(t, err)
	cfg := shared.RESTConfig(controlplane.Feed)
	cfg.BearerToken = token
	c := ask.MustNew(t, cfg, patience)
	err = poll.Retry(t.Context(), "the account's rights", func() error {
		a, err := c.Get(t.Context(), pods.Path("")+"?limit=1")
		if err == nil && a.Code != http.StatusOK {
			err = fmt.Errorf("they do not hold yet: %s", a)
		}
		return err
	})
	expect.NoError(t, err)
	return token, revoke
}

// lastHit asks for Any until it is forwarded because of its age, and returns when the last one was
// asked for that came from memory.
func (r *rig) lastHit(list string) time.Time {
	r.t.Helper()
	var last time.Time
	r.until("waiting for "+fwdStale, func() error {
		asked := time.Now()
		a, err := r.try(list, anyVersion())
		switch {
		case err != nil:
			return err
		case a.Source() == hitAny:
			last = asked
			return fmt.Errorf("%s is still answered from memory", list)
		case a.Source() != fwdStale: // as where a review broke off, which says nothing about age
			return fmt.Errorf("%s came from %q", list, a.Source())
		}
		return nil
	})
	return last
}

package upstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// newer is the version that API servers are upgraded to; "" is the one of test/controlplane/tools.
const newer = ""

// newerArgs turn on what only the newer version has.
func newerArgs() []string {
	return []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// An upgrade is of two API servers, one by one. An undisturbed one of each version says what is
// right, and an answer must be all of what one of them says. Pods have a field that only the newer
// one knows, spec.schedulingGroup: after the upgrade it is in lists, without any event.
type upgrade struct {
	*rig
	plane   *controlplane.ControlPlane
	servers []*controlplane.APIServer // to be upgraded
}

// newUpgrade starts all but listproxy, the API servers in the older version.
func newUpgrade(t *testing.T) upgrade {
	t.Helper()
	takeTurn(t)
	plane := harness.RunControlPlane(t, controlplane.Options{APIServerArgs: newerArgs()})
	var servers []*controlplane.APIServer
	for range 3 {
		s, err := plane.AddAPIServer(t.Context(), older)
		expect.NoError(t, err)
		servers = append(servers, s)
	}
	before := plane.RESTConfig(controlplane.Admin)
	before.Host = servers[0].URL()
	after := plane.RESTConfig(controlplane.Admin)
	u := upgrade{newRig(t, plane, after, before), plane, servers[1:]}
	if podsOf(u.rig, 0) == podsOf(u.rig, 1) {
		t.Fatal("both versions write pods alike: nothing could be mixed up")
	}
	return u
}

// replace ends an API server in order, and starts it in the newer version.
func (u upgrade) replace(s *controlplane.APIServer) {
	u.Helper()
	u.must(s.Stop())
	u.must(s.Use(u.Context(), newer, newerArgs()...))
	u.startAPIServer(s)
}

// mixed waits until listproxy has told in its log of other versions than before, and what it kept
// is dropped, which comes a moment after the line.
func (u upgrade) mixed(p *harness.Proxy, change string) {
	u.Helper()
	u.must(poll.Retry(u.Context(), "listproxy to hear of two versions", func() error {
		if !strings.Contains(p.Log(), `change="`+change+`"`) {
			return errors.New("not yet")
		}
		return u.kept()
	}))
}

// forwarded asks for all lists once: nothing comes from memory while there are two versions.
func (u upgrade) forwarded() {
	u.Helper()
	if err := u.kept(); err != nil {
		u.Fatalf("while there were two versions: %v", err)
	}
}

// kept returns an error if a list comes from memory.
func (u upgrade) kept() error {
	for _, c := range collections() {
		a, err := u.clients[0].GetAs(u.Context(), c.Form.Accept, c.Kind.Path("")+"?"+ask.AnyVersion)
		if err == nil && a.FromMemory() {
			return fmt.Errorf("%s as %s from memory: %s", c.Kind.Plural, c.Form.Name, a.Source())
		}
	}
	return nil
}

// upgraded waits until lists come from memory as the newer version writes them. As the older one
// does, which has no API server any more but the undisturbed one, they may not come from now on.
func (u upgrade) upgraded() {
	u.Helper()
	u.must(u.Oracle.Drain(u.Context(), patience))
	u.Oracle.Only(u.writer)
	u.must(poll.Try(u.Context(), 2*patience, pollEvery, "lists from memory with what only the newer version knows", func() error {
		a, err := u.clients[0].Get(u.Context(), load.Pods.Path("")+"?"+ask.AnyVersion)
		if err == nil && (!a.FromMemory() || !strings.Contains(string(a.Body), "schedulingGroup")) {
			err = errors.New(a.String())
		}
		return err
	}))
}

const (
	// seldom is how often a connection through the balancer is reset while API servers are
	// upgraded: watches come to the other one then, and live for long enough to be believed.
	seldom = time.Second
	// joinsLate is how long after it is ready an API server gets connections: longer than
	// --upstream-settle, so that the news of it, by its Lease, is past by then, and only /version
	// tells.
	joinsLate = 20 * time.Second
	// inTurn is for how long both versions answer behind one address: longer than listproxy takes
	// it for possible that the former still does where it did not hear it again (a minute).
	inTurn = 75 * time.Second
)

// TestUpgradedBehindOneAddress: two API servers are upgraded one by one under load, behind a balancer
// that spreads connections, and resets them now and then. listproxy has each default.
func TestUpgradedBehindOneAddress(t *testing.T) {
	if !*all {
		return // part of make faults
	}
	u := newUpgrade(t)
	before, url := u.behind(u.servers...)
	p := u.start(url, "--upstream-settle", "15s")
	quiet := u.load()
	defer quiet()
	replace := func(s *controlplane.APIServer) {
		before.Remove(address(s)) // as balancers do that look at /readyz
		u.replace(s)
		poll.Pause(t.Context(), joinsLate)
		before.Add(address(s))
	}

	u.part("two of "+older, noticedAtOnce, func() {})
	defer u.resetting(before, seldom)()
	u.part("connections reset", noticedAtOnce, func() {})
	u.part("upgraded one by one", noticedAtOnce, func() {
		replace(u.servers[0])
		joined, was := time.Now(), u.Tally.Comparisons()
		u.mixed(p, "another version")
		t.Logf("another version was heard of, and all dropped, after %.1f s, in which %d answers came from memory", time.Since(joined).Seconds(), u.Tally.Comparisons()-was)
		both, done := context.WithTimeout(t.Context(), inTurn)
		defer done()
		for poll.Pause(both, askEvery) {
			u.forwarded()
		}
		replace(u.servers[1])
		u.upgraded()
	})
	u.part("two of "+u.plane.Version(), noticedAtOnce, func() {})
}

// podsOf returns the pods as one of the undisturbed API servers writes them, without the revision.
func podsOf(r *rig, which int) string {
	r.Helper()
	a, err := r.direct[which].Get(r.Context(), load.Pods.Path("")+"?"+ask.AnyVersion)
	r.must(err)
	l, err := ask.ReadList(ask.JSON, a.Body)
	r.must(err)
	var all strings.Builder
	for _, item := range l.Items {
		all.Write(item)
	}
	return all.String()
}

package upstreams

import (
	"errors"
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
	// joinsLate is how long after it is ready an API server gets connections: so that what was loaded was
	// compared with the others by then, and only /version tells.
	joinsLate = 20 * time.Second
	// inTurn is for how long both versions answer behind one address.
	inTurn = 75 * time.Second
)

// TestUpgradedBehindOneAddress: two API servers are upgraded one by one under load, behind a balancer
// that spreads connections, and resets them now and then. In the end all is as the newer version writes it.
func TestUpgradedBehindOneAddress(t *testing.T) {
	if !*all {
		return // part of make faults
	}
	u := newUpgrade(t)
	before, url := u.behind(u.servers...)
	u.start(url)
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
		poll.Pause(t.Context(), inTurn)
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

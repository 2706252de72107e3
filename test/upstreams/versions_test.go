package upstreams

import (
	"errors"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/ask"
	"github.com/listproxy/listproxy/test/controlplane"
)

// newer is the version that API servers are upgraded to; "" is the one of test/controlplane/tools.
const newer = ""

// newerArgs turn on what only the newer version has.
func newerArgs() []string {
	return []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// TestUpgraded: two API servers are upgraded one by one under load. An undisturbed one of each version
// says what is right, and an answer must be all of what one of them says. Pods have a field that only
// the newer one knows, spec.schedulingGroup: after the upgrade it is in lists, without any event.
func TestUpgraded(t *testing.T) {
	if !*all {
		return // part of make faults
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Options{
		Log: logLine, APIServerArgs: newerArgs(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Stop()
	var servers []*controlplane.APIServer
	for range 3 {
		s, err := plane.AddAPIServer(t.Context(), older)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
	}
	undisturbed, servers := servers[0], servers[1:]
	before := plane.RESTConfig(controlplane.Admin)
	before.Host = undisturbed.URL()
	after := plane.RESTConfig(controlplane.Admin)
	r := newRig(t, plane, after, before)
	defer r.proxies.Stop(r)
	if podsOf(r, 0) == podsOf(r, 1) {
		t.Fatal("both versions write pods alike: nothing could be mixed up")
	}
	p := r.start(unheard(t), append(upstreamArgs(servers...), "--upstream-settle", "10s")...)
	quiet := r.load()
	defer quiet()

	r.part("two of "+older, func() {})
	r.part("one upgraded", func() {
		r.must(servers[0].Stop())
		r.must(servers[0].Use(t.Context(), newer, newerArgs()...))
		r.must(servers[0].Start(t.Context()))
		// While there are two versions nothing comes from memory.
		r.must(retry(t.Context(), "listproxy to hear of two versions", func() error {
			if !strings.Contains(p.Log(), `change="other versions"`) {
				return errors.New("not yet")
			}
			return nil
		}))
		for range 100 {
			for _, c := range collections() {
				a, err := r.clients[0].GetAs(t.Context(), c.accept, c.path()+"?"+ask.AnyVersion)
				r.must(err)
				if a.FromMemory() {
					t.Fatalf("%v from memory while there were two versions", c)
				}
			}
		}
		r.must(servers[1].Stop())
		r.must(servers[1].Use(t.Context(), newer, newerArgs()...))
		r.must(servers[1].Start(t.Context()))
	})
	r.part("two of "+plane.Version(), func() {})
	r.must(retry(t.Context(), "lists from memory with what only the newer version knows", func() error {
		a, err := r.clients[0].GetAs(t.Context(), ask.JSON, collection{"pods", ask.JSON}.path()+"?"+ask.AnyVersion)
		if err == nil && (!a.FromMemory() || !strings.Contains(string(a.Body), "schedulingGroup")) {
			err = errors.New(a.String())
		}
		return err
	}))
}

// podsOf returns the pods as one of the undisturbed API servers writes them, without the revision.
func podsOf(r *rig, which int) string {
	r.Helper()
	q := question{collection: collection{"pods", ask.JSON}, query: ask.AnyVersion}
	a, err := r.oracle.direct[which].GetAs(r.Context(), q.accept, q.target())
	r.must(err)
	l, err := ask.ReadList(q.accept, a.Body)
	r.must(err)
	var all strings.Builder
	for _, item := range l.Items {
		all.Write(item)
	}
	return all.String()
}

package upstreams

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
)

// newer is the version that API servers are upgraded to; "" is the one of test/controlplane/tools.
const newer = ""

// TestUpgraded: two API servers are upgraded one by one under load. An undisturbed one of each version
// says what is right, and an answer must be all of what one of them says.
func TestUpgraded(t *testing.T) {
	if !*versions {
		return // part of make faults
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Log: logLine})
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
	// What is written is written by the older one, as an upgrade demands of a client.
	r := newRig(t, plane, before, plane.RESTConfig(controlplane.Admin))
	t.Log(differ(t, r, before, plane.RESTConfig(controlplane.Admin)))
	defer r.end()
	p := r.start(unheard(t), append(upstreamArgs(servers...), "--upstream-settle", "10s")...)
	quiet := r.load()
	defer quiet()

	r.part("two of "+older, func() {})
	r.part("one upgraded", func() {
		r.must(servers[0].Stop())
		r.must(servers[0].Use(t.Context(), newer))
		r.must(servers[0].Start(t.Context()))
		// While there are two versions nothing comes from memory.
		r.must(poll(t.Context(), "listproxy to hear of two versions", func() error {
			if !strings.Contains(p.Log(), `change="other versions"`) {
				return errStillReady("not yet")
			}
			return nil
		}))
		for range 100 {
			for _, c := range collections() {
				a, err := r.clients[0].get(t.Context(), c.accept, c.path()+"?"+anyVersion)
				r.must(err)
				if a.fromMemory() {
					t.Fatalf("%v from memory while there were two versions", c)
				}
			}
		}
		r.must(servers[1].Stop())
		r.must(servers[1].Use(t.Context(), newer))
		r.must(servers[1].Start(t.Context()))
	})
	r.part("two of "+plane.Version(), func() {})
}

// differ says which lists the two versions write differently: only there can an answer be wrong.
func differ(t *testing.T, r *rig, a, b *rest.Config) string {
	t.Helper()
	var found []string
	one, err := newClient(a)
	r.must(err)
	two, err := newClient(b)
	r.must(err)
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/services", "/api/v1/serviceaccounts",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
		"/apis/apiregistration.k8s.io/v1/apiservices", "/apis/scheduling.k8s.io/v1/priorityclasses",
	} {
		first, err := one.get(t.Context(), asJSON, path)
		r.must(err)
		l, err := collection{accept: asJSON}.read(first.body)
		r.must(err)
		var second answer
		r.must(poll(t.Context(), path, func() error {
			second, err = two.get(t.Context(), asJSON, path+"?"+exactly(l.revision))
			if err == nil && second.code != http.StatusOK {
				err = fmt.Errorf("%s", second)
			}
			return err
		}))
		if !bytes.Equal(first.body, second.body) {
			found = append(found, path+": "+difference(first.body, second.body))
		}
	}
	return fmt.Sprintf("%d lists are written differently: %s", len(found), strings.Join(found, "; "))
}

package faults

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// patient is a listproxy whose upstream is broken in many ways.
type patient struct {
	*testing.T
	*harness.Proxy
	// told is the conditions that the upstream has been in.
	told []upstream.Condition
}

// launch runs a listproxy with an account, ready or not.
func launch(t *testing.T, own *rest.Config) *patient {
	t.Helper()
	p, err := harness.LaunchProxy(t.Context(), harness.ProxyOptions{
		Upstream: own, Args: []string{"--eager", "configmaps,pods", "--staleness-bound", load.Bound.String()},
	})
	expect.NoError(t, err)
	running := &harness.Proxies{}
	running.Add(p)
	t.Cleanup(func() { running.Stop(t) })
	return &patient{T: t, Proxy: p}
}

func (p *patient) must(err error) {
	p.Helper()
	expect.NoError(p.T, err)
}

// await waits until the upstream is told to be in a condition, in whatever way it is told: healthy,
// the check, metrics, and /readyz, which says no where another replica may be well.
func (p *patient) await(want upstream.Condition, ready bool) {
	p.Helper()
	p.must(poll.Retry(p.Context(), "the upstream is told to be "+string(want), func() error {
		s, err := p.Status(p.Context())
		p.must(err)
		healthy := want == upstream.ConditionOK
		if u := s.Upstream; u.State != string(want) || s.Healthy != healthy || (u.Error == "") != healthy || (u.Advice == "") != healthy {
			return fmt.Errorf("healthy is %t, the upstream %+v, checks %+v", s.Healthy, u, s.Checks)
		}
		if is, said := p.Ready(p.Context()); is != ready {
			return errors.New(said)
		}
		metrics, err := ask.At(p.AdminURL()).Get(p.Context(), "/metrics")
		p.must(err)
		value := map[bool]int{true: 1}[healthy]
		if line := fmt.Sprintf("\nlistproxy_upstream_ok{state=%q} %d\n", want, value); !strings.Contains(string(metrics.Body), line) {
			return fmt.Errorf("metrics do not have %s", line)
		}
		return nil
	}))
	p.told = append(p.told, want)
}

var (
	stateLine = regexp.MustCompile(`^time=\S+ level=(\S+) msg="kube-apiserver .* state=(\S+)`)
	retryLine = regexp.MustCompile(`^time=\S+ level=(INFO|WARN|ERROR) .*(cannot be followed|a stream ended|not resumed)`)
	// These say which resource it is, and nothing of how the upstream is.
	aboutAResource = regexp.MustCompile("403 Forbidden|410 Gone")
)

// judge looks at the log: each change has one line, and while there was trouble no other told that
// something failed for it; but which resources are refused (403) is told of each. An API server that
// comes back may not be ready for a while.
func (p *patient) judge() {
	p.Helper()
	_, log, _ := strings.Cut(p.Log(), "msg=serving address")
	var changes []upstream.Condition
	trouble := false
	for line := range strings.Lines(log) {
		if m := stateLine.FindStringSubmatch(line); m != nil {
			is, n := upstream.Condition(m[2]), len(changes)
			comesBack := n > 0 && changes[n-1] == upstream.ConditionUnreachable
			if !comesBack || is != upstream.ConditionNotReady {
				changes = append(changes, is)
			}
			if trouble = is != upstream.ConditionOK; trouble != (m[1] == "WARN" && strings.Contains(line, " do=")) {
				p.Errorf("a change is told as %s", line)
			}
		} else if trouble && retryLine.MatchString(line) && !aboutAResource.MatchString(line) {
			p.Errorf("while the upstream was in trouble the log told, too: %s", line)
		}
	}
	if !slices.Equal(changes, p.told) {
		p.Errorf("the log tells of %v, and there was %v\n%s", changes, p.told, log)
	}
}

// TestHealthOfUpstream: an API server that is away, stands still, takes rights away or does not know
// the account any more is told as what it is, everywhere, with one line in the log; and so is that it
// is well again. /readyz says yes, since other replicas would be no better: callers get a 503 where
// nobody answers. It says no to a new replica whose account is refused. What an account may not read,
// or was refused for, is not answered from memory.
func TestHealthOfUpstream(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plane := harness.RunControlPlane(t, controlplane.Options{}) // its own, for the rights it has
	token, err := plane.CreateServiceAccountToken(t.Context(), controlplane.TeamB, "patient")
	expect.NoError(t, err)
	// Rights that every account of docs/rbac.yaml has.
	grant := controlplane.Grant{To: []string{controlplane.TeamB + "/patient"}}
	for group, resources := range map[string]string{
		"": "configmaps,pods", "apiregistration.k8s.io": "apiservices", "apiextensions.k8s.io": "customresourcedefinitions",
		"coordination.k8s.io": "leases", "internal.apiserver.k8s.io": "storageversions",
		"rbac.authorization.k8s.io": "clusterroles,clusterrolebindings,roles,rolebindings",
	} {
		grant.Rules = append(grant.Rules, controlplane.Rule("list,watch", group, resources))
	}
	revoke, err := plane.Grant(t.Context(), grant)
	expect.NoError(t, err)
	admin := plane.RESTConfig(controlplane.Admin)
	own := plane.RESTConfig(controlplane.Admin)
	own.BearerToken = token
	expect.NoError(t, plane.KillAPIServer())

	p := launch(t, own)
	defer p.judge()
	direct, caller := ask.MustNew(t, admin, requestTimeout), ask.MustNew(t, p.RESTConfig(admin), requestTimeout)
	// comes waits until a list of any state comes from there.
	comes := func(detail string) {
		t.Helper()
		p.must(poll.Retry(t.Context(), "a list: "+detail, func() error {
			a, err := caller.Get(t.Context(), pods.Path("")+"?"+ask.AnyVersion)
			if err == nil && !strings.HasSuffix(a.Source(), detail) {
				err = errors.New(a.String())
			}
			return err
		}))
	}
	p.await(upstream.ConditionUnreachable, false) // since nothing is loaded yet
	p.must(plane.StartAPIServer(t.Context()))
	p.await(upstream.ConditionOK, true)
	comes("hit; detail=any")

	p.must(plane.KillAPIServer())
	p.await(upstream.ConditionUnreachable, true)
	if a, err := caller.Get(t.Context(), "/api/v1/namespaces/default"); err != nil || a.Code != http.StatusServiceUnavailable ||
		!strings.Contains(string(a.Body), "listproxy could not reach the Kubernetes API server") {
		t.Errorf("while it is away, %v: %s", err, a)
	}
	p.must(plane.StartAPIServer(t.Context()))
	p.await(upstream.ConditionOK, true)

	p.must(plane.PauseAPIServer())
	p.await(upstream.ConditionUnreachable, true)
	p.must(plane.ResumeAPIServer())
	p.await(upstream.ConditionOK, true)

	p.must(revoke(t.Context()))
	p.must(plane.KillAPIServer()) // so that no watch is left
	p.await(upstream.ConditionUnreachable, true)
	p.must(plane.StartAPIServer(t.Context()))
	p.await(upstream.ConditionForbidden, true)
	comes("detail=not-permitted")
	_, err = plane.Grant(t.Context(), grant)
	p.must(err)
	p.await(upstream.ConditionOK, true)
	comes("hit; detail=any")

	_, err = direct.Do(t.Context(), http.MethodDelete, "/api/v1/namespaces/"+controlplane.TeamB+"/serviceaccounts/patient", nil)
	p.must(err)
	// All replicas would have lost it: so this one stays in its balancer, and callers' own requests go
	// on.
	p.await(upstream.ConditionUnauthorized, true)
	if a, err := caller.Get(t.Context(), "/api/v1/namespaces/default"); err != nil || a.Code != http.StatusOK {
		t.Errorf("a caller's own request, %v: %s", err, a)
	}
	comes("detail=stale")
	other := launch(t, own)
	other.await(upstream.ConditionUnauthorized, false)
	if _, said := other.Ready(t.Context()); !strings.Contains(said, "[-]upstream") {
		t.Errorf("of a new replica: %s", said)
	}
	other.judge()
}

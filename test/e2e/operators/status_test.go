package operators

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// getAdmin returns the answer to a GET at the admin port.
func getAdmin(t *testing.T, p *harness.Proxy, path string) ask.Answer {
	t.Helper()
	a, err := ask.At(p.AdminURL()).Get(t.Context(), path)
	expect.NoError(t, err)
	return a
}

// TestStatus: after three lists from memory, two forwarded lists and a forwarded watch, the status of listproxy counts them,
// and shows the upstream, the memory and the collections. The metrics count the same lists, and the access log has them. The
// status page has no dead links.
func TestStatus(t *testing.T) {
	client := ask.MustNew(t, statusProxy.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)
	get := func(target string) {
		t.Helper()
		_, err := client.Get(t.Context(), target)
		expect.NoError(t, err)
	}
	const namespacesPath = "/api/v1/namespaces"
	const fromMemory, forwardedLists = 3, 2
	for range fromMemory {
		_, err := client.AwaitMemory(t.Context(), namespacesPath+"?resourceVersion=0")
		expect.NoError(t, err)
	}
	for range forwardedLists {
		get(namespacesPath) // forwarded: a consistent list, without --consistent-lists
	}
	get(namespacesPath + "?" + ask.StreamingList + "&timeoutSeconds=1") // forwarded: a watch, without --watches

	var status admin.Status
	// A request is counted only after its answer has ended.
	poll.Until(t, patience, "the status counts every request", func() (done bool) {
		var err error
		status, err = statusProxy.Status(t.Context())
		expect.NoError(t, err)
		return status.Lists.FromMemory >= fromMemory && status.Lists.Forwarded >= forwardedLists && status.Watches.Forwarded >= 1
	})
	checkStatus(t, status)

	metrics := string(getAdmin(t, statusProxy, "/metrics").Body)
	const series = `decision="serve",reason="none",resource="namespaces",semantics="any",verb="list"} %d`
	expect.Says(t, metrics, fmt.Sprintf(series, status.Lists.FromMemory)) // the same number as in the status
	checkLinks(t)
	expect.Says(t, statusProxy.Log(), `level=ACCESS msg=request method=GET target="list namespaces v1"`)
}

// checkStatus checks the parts of the status after TestStatus's requests.
func checkStatus(t *testing.T, status admin.Status) {
	t.Helper()
	if !status.Healthy {
		t.Errorf("the status is not healthy: %+v", status)
	}
	if status.Upstream.Address != cp.URL() || status.Upstream.State != string(upstream.ConditionOK) {
		t.Errorf("the upstream is %+v, want %s to be ok", status.Upstream, cp.URL())
	}
	if status.Memory.Stored == 0 || status.Memory.Process == 0 {
		t.Errorf("the memory is %+v, want more than 0 bytes", status.Memory)
	}
	hasConsistent := slices.ContainsFunc(status.Reasons, func(r admin.Reason) bool { return r.Reason == "consistent" && r.Lists >= 2 })
	hasWatch := slices.ContainsFunc(status.Reasons, func(r admin.Reason) bool { return r.Reason == "watch" && r.Watches >= 1 })
	if !hasConsistent || !hasWatch {
		t.Errorf("the reasons are %+v, want consistent for two lists and watch for a watch", status.Reasons)
	}
	isNamespaces := func(c admin.Collection) bool { return c.Resource == "namespaces" && c.Representation == "json" }
	i := slices.IndexFunc(status.Collections, isNamespaces)
	if i < 0 {
		t.Fatalf("the collections are %+v, want one of namespaces", status.Collections)
	}
	const minNamespaces = 4 // kube-apiserver creates so many by itself
	namespaces := status.Collections[i]
	if namespaces.State != admin.StateLive {
		t.Errorf("the collection of namespaces is %q, want it live", namespaces.State)
	}
	if namespaces.Objects < minNamespaces {
		t.Errorf("the collection of namespaces has %d objects, want at least %d", namespaces.Objects, minNamespaces)
	}
}

// checkLinks requires that the status page has links, and none that is dead.
func checkLinks(t *testing.T) {
	t.Helper()
	page := getAdmin(t, statusProxy, "/")
	links := pages.Matches(`<a href="([^"]*)"`, string(page.Body))
	if len(links) == 0 {
		t.Error("the page has no links")
	}
	for _, link := range links {
		if a := getAdmin(t, statusProxy, "/"+link); a.Code != http.StatusOK {
			t.Errorf("GET of the link %s: %s", link, a)
		}
	}
}

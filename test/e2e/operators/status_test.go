package operators

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// getAdmin returns the answer to a GET at the admin port.
func getAdmin(t *testing.T, p *harness.Proxy, path string) ask.Answer {
	t.Helper()
	a, err := ask.At(p.AdminURL()).Get(t.Context(), path)
	expect.NoError(t, err)
	return a
}

// TestStatus: the status counts the requests that went through listproxy, as metrics and the access log do, and shows the upstream,
// the memory and the collections. The status page has no dead links.
func TestStatus(t *testing.T) {
	client := ask.MustNew(t, statusProxy.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)
	forward := func(target string) {
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
		forward(namespacesPath) // the list must be consistent, and statusProxy has no --consistent-lists
	}
	forward(namespacesPath + "?" + ask.StreamingList + "&timeoutSeconds=1") // a watch, and statusProxy has no --watches

	var status admin.Status
	// A request is counted only after its answer has ended.
	poll.Until(t, patience, "the status counts every request", func() (done bool) {
		var err error
		status, err = statusProxy.Status(t.Context())
		expect.NoError(t, err)
		return status.Lists.Answered >= fromMemory && status.Lists.Forwarded >= forwardedLists && status.Watches.Forwarded >= 1
	})
	checkStatus(t, status)

	metrics := string(getAdmin(t, statusProxy, "/metrics").Body)
	const series = `decision="serve",reason="none",resource="namespaces",semantics="any",verb="list"} %d`
	expect.Says(t, metrics, fmt.Sprintf(series, status.Lists.Answered)) // the same number as in the status
	checkPage(t)
	expect.Says(t, statusProxy.Log(), `level=ACCESS msg=request method=GET target="list namespaces v1"`)
}

// checkStatus checks all parts of the status after TestStatus's requests.
func checkStatus(t *testing.T, status admin.Status) {
	t.Helper()
	if !status.Healthy || status.Version == "" || status.Uptime <= 0 || status.Lists.Share == nil {
		t.Errorf("the status has no health, version, uptime or share: %+v", status)
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
	checkNamespaces(t, status.Collections[i])
}

// checkNamespaces checks the collection of namespaces.
func checkNamespaces(t *testing.T, namespaces admin.Collection) {
	t.Helper()
	const windowSeconds = 150 // the default of --history-window
	const minNamespaces = 4   // kube-apiserver creates so many by itself
	if namespaces.State != admin.StateLive || namespaces.Age == nil {
		t.Errorf("the collection of namespaces has the state %q and the age %v, want it live and the age known", namespaces.State, namespaces.Age)
	}
	if namespaces.Objects < minNamespaces {
		t.Errorf("the collection of namespaces has %d objects, want at least %d", namespaces.Objects, minNamespaces)
	}
	if namespaces.From <= 0 || namespaces.To < namespaces.From || namespaces.Window != windowSeconds {
		t.Errorf("the history of namespaces is %d to %d in a window of %v s, want one of %d s",
			namespaces.From, namespaces.To, namespaces.Window, windowSeconds)
	}
}

// checkPage checks the status page of a browser: its links, its policy against scripts, and that it says that listproxy is
// healthy.
func checkPage(t *testing.T) {
	t.Helper()
	page := getAdmin(t, statusProxy, "/")
	links := regexp.MustCompile(`<a href="([^"]*)"`).FindAllStringSubmatch(string(page.Body), -1)
	if len(links) == 0 {
		t.Error("the page has no links")
	}
	for _, link := range links {
		if a := getAdmin(t, statusProxy, "/"+link[1]); a.Code != http.StatusOK {
			t.Errorf("GET of the link %s: %s", link[1], a)
		}
	}
	if policy := page.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("the Content-Security-Policy is %q, want one that begins with default-src 'none'", policy)
	}
	expect.Says(t, string(page.Body), "✓ healthy")
}

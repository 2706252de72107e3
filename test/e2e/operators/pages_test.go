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

// TestStatus: the status page counts requests that went through listproxy, as metrics and the access log do, shows the
// collections, and has no dead links.
func TestStatus(t *testing.T) {
	client := ask.MustNew(t, paged.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)
	get := func(target string) ask.Answer {
		t.Helper()
		a, err := client.Get(t.Context(), target)
		expect.NoError(t, err)
		return a
	}
	const lists = "/api/v1/namespaces"
	for range 3 {
		_, err := client.AwaitMemory(t.Context(), lists+"?resourceVersion=0")
		expect.NoError(t, err)
	}
	for range 2 {
		get(lists)
	}
	get(lists + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1")

	var now admin.Status // polled, since a request is counted after its answer has ended
	poll.Until(t, patience, "the status counts every request", func() (done bool) {
		var err error
		now, err = paged.Status(t.Context())
		expect.NoError(t, err)
		return now.Lists.Answered >= 3 && now.Lists.Forwarded >= 2 && now.Watches.Forwarded >= 1
	})
	if !now.Healthy || now.Version == "" || now.Uptime <= 0 || now.Lists.Share == nil {
		t.Errorf("the status has no health, version, uptime or share: %+v", now)
	}
	if now.Upstream.Address != cp.URL() || now.Upstream.State != string(upstream.ConditionOK) {
		t.Errorf("the upstream is %+v, want %s to be ok", now.Upstream, cp.URL())
	}
	if now.Memory.Stored == 0 || now.Memory.Process == 0 {
		t.Errorf("the memory is %+v, want more than 0 bytes", now.Memory)
	}
	hasConsistent := slices.ContainsFunc(now.Reasons, func(r admin.Reason) bool { return r.Reason == "consistent" && r.Lists >= 2 })
	hasWatch := slices.ContainsFunc(now.Reasons, func(r admin.Reason) bool { return r.Reason == "watch" && r.Watches >= 1 })
	if !hasConsistent || !hasWatch {
		t.Errorf("the reasons are %+v, want consistent for two lists and watch for a watch", now.Reasons)
	}
	isNamespaces := func(c admin.Collection) bool { return c.Resource == "namespaces" && c.Representation == "json" }
	i := slices.IndexFunc(now.Collections, isNamespaces)
	if i < 0 {
		t.Fatalf("the collections are %+v, without namespaces", now.Collections)
	}
	namespaces := now.Collections[i]
	const windowSeconds, minNamespaces = 150, 4 // the default window, and kube-apiserver's own namespaces
	hasHistory := namespaces.From > 0 && namespaces.To >= namespaces.From && namespaces.Window == windowSeconds
	if namespaces.State != admin.StateLive || namespaces.Objects < minNamespaces || !hasHistory || namespaces.Age == nil {
		t.Errorf("the collection of namespaces is %+v, want it live, with at least %d objects and a history", namespaces, minNamespaces)
	}
	metrics := string(getAdmin(t, paged, "/metrics").Body)
	const series = `decision="serve",reason="none",resource="namespaces",semantics="any",verb="list"} %d`
	expect.Says(t, metrics, fmt.Sprintf(series, now.Lists.Answered))
	page := getAdmin(t, paged, "/")
	for _, link := range regexp.MustCompile(`<a href="([^"]*)"`).FindAllStringSubmatch(string(page.Body), -1) {
		if a := getAdmin(t, paged, "/"+link[1]); a.Code != http.StatusOK {
			t.Errorf("GET of the link %s: %s", link[1], a)
		}
	}
	if !strings.HasPrefix(page.Header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(string(page.Body), "✓ healthy") {
		t.Errorf("the page has no policy against scripts, or does not say that listproxy is healthy: %v\n%s", page.Header, page.Body)
	}
	if line := `level=ACCESS msg=request method=GET target="list namespaces v1"`; !strings.Contains(paged.Log(), line) {
		t.Errorf("the access log does not have %s", line)
	}
}

package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

func TestMayAnswer(t *testing.T) {
	pods, widgets := cluster.Entry{Namespaced: true}, cluster.Entry{Namespaced: true, Custom: true}
	now := time.Now()
	state := snapshot.Snapshot{Revision: 7, Heard: now.Add(-time.Minute)}
	memory := snapshot.Validity{Interval: snapshot.Interval{From: 7, To: 9}, Staleness: time.Hour}
	firm := conditions{at: now, entry: pods, memory: memory, allowed: true}
	with := func(change func(*conditions)) conditions {
		on := firm
		change(&on)
		return on
	}
	for _, tt := range []struct {
		name string
		on   conditions
		want reason.Reason
	}{
		{"nothing has changed", firm, ""},
		{"nothing is known", conditions{}, reason.Warming},
		{"a definition is not vouched for", with(func(g *conditions) { g.unknown = reason.Upstream }), reason.Upstream},
		{"the catalog does not know it any more", with(func(g *conditions) { g.entry, g.unknown = cluster.Entry{}, reason.UnknownResource }), reason.UnknownResource},
		{"it is another kind of resource", with(func(g *conditions) { g.entry = widgets }), reason.Warming},
		{"it is of another scope now", with(func(g *conditions) { g.entry.Namespaced = !g.entry.Namespaced }), reason.Warming},
		{"the state is too old", with(func(g *conditions) { g.at = now.Add(time.Hour) }), reason.Stale},
		{"the collection was given up", with(func(g *conditions) { g.memory = snapshot.Validity{Absence: reason.Upstream} }), reason.Upstream},
		{"the revision is let go of", with(func(g *conditions) { g.memory.Interval = snapshot.Interval{From: 8, To: 9} }), reason.History},
		{"an epoch has ended", with(func(g *conditions) { g.memory.Epoch++ }), reason.Warming},
		{"the review counts no more", with(func(g *conditions) { g.allowed = false }), reason.ReviewFailed},
		{"all at once", conditions{unknown: reason.Upstream, memory: snapshot.Validity{Absence: reason.Stale}}, reason.Upstream},
	} {
		if got := mayAnswer(pods, state, tt.on); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

const (
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
	coreAPIService  = `{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"v1.","resourceVersion":"1",` +
		`"labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}},"spec":{"version":"v1"}}`
)

// fakeCluster is an API server that serves pods.
func fakeCluster() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	f.Collections[apiServicesPath] = &proxytest.FakeCollection{Kind: "APIServiceList", Objects: []string{coreAPIService}}
	f.Collections["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"] = &proxytest.FakeCollection{
		Kind: "CustomResourceDefinitionList", APIVersion: "apiextensions.k8s.io/v1",
	}
	f.Document("/api/v1", `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[`+
		`{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}`)
	f.Document("/version", `{"gitVersion":"v1.36.3"}`)
	return f
}

// runCluster runs a Cluster of f in the bubble.
func runCluster(t *testing.T, f *proxytest.FakeAPI, invalidate func(snapshot.Invalidation)) *cluster.Cluster {
	t.Helper()
	served, err := cluster.New(f.Config(), cluster.Config{Invalidate: invalidate, Verify: func(string) {}, Log: proxytest.DiscardLog()})
	expect.NoError(t, err)
	proxytest.RunInBubble(t, served.Run)
	synctest.Wait()
	if _, reason := served.Lookup(schema.GroupVersionResource{Version: "v1", Resource: "pods"}); reason != "" {
		t.Fatalf("pods are not served: %s", reason)
	}
	return served
}

// decider is a Handler that knows of the pods of f, and whose collections have no upstream.
func decider(t *testing.T, f *proxytest.FakeAPI, bodies int64) *Handler {
	t.Helper()
	bounds, err := limits.New(limits.Config{Requests: 10, Bytes: bodies, Wait: time.Minute})
	expect.NoError(t, err)
	collections := snapshot.NewCollections(snapshot.Config{
		Client: &http.Client{Transport: proxytest.Transport(func(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed })},
		Base:   &url.URL{Scheme: "https", Host: "upstream.example"},
		Log:    proxytest.DiscardLog(),
	})
	t.Cleanup(collections.Close)
	return &Handler{
		Cluster:     runCluster(t, f, func(snapshot.Invalidation) {}),
		Authorizer:  authorizerOf(t, sayYes),
		Collections: collections,
		Limits:      bounds,
		Observer:    observetest.Unread(),
		Log:         proxytest.DiscardLog(),
	}
}

// TestLastWordAfterEveryWait: what ends while an answer waits for room has it forwarded: nothing
// was written, nothing is held, and the audit log does not say that it was answered.
func TestLastWordAfterEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &auditSink{}
		log := audit.NewLog(sink, proxytest.DiscardLog())
		f := fakeCluster()
		h := decider(t, f, 10_000)
		h.AuditLog = log
		id := authntest.New(t).OfUser(&user.DefaultInfo{Name: "alice"})
		who := caller{identity: id, verdict: upstream.Accepted, flow: authn.FlowOf(id, true, "")}
		collection, _ := h.Collections.Use(snapshot.Resource{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true, Representation: media.JSON,
		})
		list := policy.Request{Version: "v1", Resource: "pods"}
		found := listOf(3, 1000)
		found.entry, found.collection = cluster.Entry{Namespaced: true}, collection
		yes, err := h.Authorizer.Review(t.Context(), who.asked(), authz.Attributes{Verb: "list", Version: "v1", Resource: "pods"})
		if err != nil || yes.Decision() != authz.Yes {
			t.Fatalf("the review: %v", err)
		}
		found.rights.callers = yes

		release := takeRoom(t, h.Limits, 10_000)
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?resourceVersion=0", nil)
		done := make(chan reason.Reason)
		go func() { done <- serveWhole(h, w, r, who, list, &found) }()
		synctest.Wait()                                      // it waits for room
		f.Event(apiServicesPath, "MODIFIED", coreAPIService) // its resources are to be read again
		release()
		if got := <-done; got != reason.Warming {
			t.Errorf("it was answered, or not for this reason: %q", got)
		}
		if len(w.Result().Header) > 0 || w.Body.Len() > 0 {
			t.Errorf("written: %v, %q", w.Result().Header, w.Body)
		}
		if s := h.Limits.Stats()["bytes"]; s.InUse != 0 {
			t.Errorf("%d bytes are held", s.InUse)
		}
		if err := log.Close(t.Context()); err != nil || sink.Len() > 0 {
			t.Errorf("audited: %q, %v", sink.String(), err)
		}
	})
}

// takeRoom takes all of so many bytes, for two others.
func takeRoom(t *testing.T, bounds *limits.Limits, bytes int) (release func()) {
	t.Helper()
	var taken []limits.Grant
	for _, name := range []string{"one", "two"} {
		id := authntest.New(t).OfUser(&user.DefaultInfo{Name: name})
		room, err := bounds.Answer(t.Context(), authn.FlowOf(id, true, ""), bytes/2)
		expect.NoError(t, err)
		taken = append(taken, room)
	}
	return func() {
		for i := range taken {
			taken[i].Release()
		}
	}
}

// auditSink is what an audit log is written to.
type auditSink struct{ strings.Builder }

// Close implements [io.Closer].
func (*auditSink) Close() error { return nil }

// authorizerOf returns an Authorizer whose reviews are answered by rt.
func authorizerOf(t *testing.T, rt proxytest.Transport) *authz.Authorizer {
	t.Helper()
	return authorizerWith(t, rt, authz.Config{TTL: time.Hour})
}

func authorizerWith(t *testing.T, rt proxytest.Transport, config authz.Config) *authz.Authorizer {
	t.Helper()
	r, err := authz.NewAuthorizer(authntest.SendAs(rt), &url.URL{Scheme: "https", Host: "upstream.example"}, config, proxytest.DiscardLog())
	expect.NoError(t, err)
	return r
}

// sayYes answers a review with a yes.
func sayYes(r *http.Request) (*http.Response, error) {
	return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
}

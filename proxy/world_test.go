package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	modelServices    = "/apis/apiregistration.k8s.io/v1/apiservices"
	modelDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	modelStaleness   = 90 * time.Second

	modelPath = "/apis/example.com/v1/widgets"
	// newestStreamingList is the query of a streaming list of the newest state, unless a resourceVersion is added.
	newestStreamingList = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	// newestRevision stands for the newest revision in a query.
	newestRevision = "NEWEST"
)

var modelUpstream = &url.URL{Scheme: "https", Host: "upstream.example"}

// modelWorld is a cluster with one custom resource that has one object, and a Handler in front of it.
type modelWorld struct {
	*proxytest.FakeAPI
	handler *Handler
	// probeDelay is the time from a feed's probe to its answer.
	probeDelay time.Duration

	mu                  sync.Mutex
	generation          int // of the definition
	revision            int // of the widgets
	definitionsRevision int // of definitions and APIServices
	// failing reports whether loads fail.
	failing bool
	// away reports whether the API server does not answer feeds.
	away bool
	// compresses reports whether streaming lists are compressed.
	compresses bool
	// bulk makes the object long. It has no character that JSON escapes.
	bulk string
}

// item returns the object as it is now.
func (w *modelWorld) item() string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",`+
		`"metadata":{"name":"a","namespace":"n","resourceVersion":"%d"},"spec":"%d%s"}`,
		w.revision, w.generation, w.bulk)
}

// feed answers a request of a feed. It refuses to continue a watch that broke, since the revision is too old.
func (w *modelWorld) feed(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	isWatch := query.Get("watch") != ""
	isStreaming := query.Get("sendInitialEvents") != ""
	selector := query.Get("fieldSelector") // of a probe or a progress watch
	isLoad := selector == "" && (isStreaming || !isWatch)
	if strings.Contains(selector, "~") { // a probe
		w.mu.Lock()
		delay := w.probeDelay
		w.mu.Unlock()
		time.Sleep(delay)
	}
	w.mu.Lock()
	fails := w.away || w.failing && isLoad
	w.mu.Unlock()
	switch {
	case fails:
		return nil, io.ErrUnexpectedEOF
	case isWatch && !isStreaming && selector == "":
		return proxytest.Refusal(r, http.StatusGone), nil
	case strings.Contains(r.Header.Get("Accept"), "protobuf"):
		return proxytest.Refusal(r, http.StatusNotAcceptable), nil
	}
	res, err := w.RoundTrip(r)
	if err == nil {
		res.Uncompressed = w.compresses && isStreaming && selector != "" // as if net/http had decompressed it
	}
	return res, err
}

// definition returns the definition as it is now.
func (w *modelWorld) definition() string {
	return proxytest.Definition("widgets", "Namespaced", w.generation, w.definitionsRevision)
}

// replaceObject makes the object that newObject returns the only one at path, at the next revision. Only lists see it: no watch
// gets an event.
func (w *modelWorld) replaceObject(path string, newObject func() string) (object string) {
	w.mu.Lock()
	w.revision++
	w.definitionsRevision++
	object = newObject()
	w.mu.Unlock()
	w.SetObjects(path, object)
	return object
}

// redefine changes the definition, with an event.
func (w *modelWorld) redefine() {
	w.Event(modelDefinitions, "MODIFIED", w.replaceObject(modelDefinitions, w.nextDefinition))
}

// nextDefinition changes the definition, and returns it.
func (w *modelWorld) nextDefinition() string {
	w.generation++
	return w.definition()
}

// reroute makes another server answer for the group, or kube-apiserver itself if service is empty.
func (w *modelWorld) reroute(service string) {
	w.Event(modelServices, "MODIFIED", w.replaceObject(modelServices, func() string { return w.route(service) }))
}

// route returns the APIService of the group as it is now.
func (w *modelWorld) route(service string) string {
	return proxytest.APIService("v1", "example.com", service, w.definitionsRevision)
}

// stallDefinitions breaks the watch of definitions, and sends nothing on the next one.
func (w *modelWorld) stallDefinitions() {
	w.Stall(modelDefinitions)
	w.End(modelDefinitions)
}

// changeAndCutFeeds makes a change to w, and then breaks the watches of feeds off.
func (w *modelWorld) changeAndCutFeeds(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.Cut(modelPath)
}

// loseState makes feeds lose their state, by an event that contradicts it. The state can be loaded again after a time.
func (w *modelWorld) loseState(reloadAfter time.Duration) {
	w.mu.Lock()
	w.failing = true
	unknown := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"unknown","namespace":"n","resourceVersion":"%d"}}`, w.revision+1)
	w.mu.Unlock()
	w.Send(modelPath, "DELETED", unknown)
	w.Cut(modelPath)
	time.AfterFunc(reloadAfter, func() { w.changeAndCutFeeds(func() { w.failing = false }) })
}

// write changes the object at the next revision, with an event.
func (w *modelWorld) write() {
	w.mu.Lock()
	w.revision++
	item := w.item()
	w.mu.Unlock()
	w.Send(modelPath, "MODIFIED", item)
}

var modelWidgets = snapshot.CollectionKey{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Namespaced:           true, Representation: media.JSON,
}

// newModelWorld returns a modelWorld, in a bubble. Every review says yes.
func newModelWorld(t *testing.T) *modelWorld {
	t.Helper()
	return newModelWorldWithMemory(t, 0)
}

// newModelWorldWithMemory is newModelWorld with memory as --cache-bytes; 0 means no bound.
func newModelWorldWithMemory(t *testing.T, memory int64) *modelWorld {
	t.Helper()
	w := &modelWorld{FakeAPI: proxytest.NewFakeAPI(), revision: 100}
	w.Collections[modelServices] = &proxytest.FakeCollection{Kind: "APIServiceList", Objects: []string{w.route("")}}
	w.Collections[modelDefinitions] = &proxytest.FakeCollection{
		Kind: "CustomResourceDefinitionList", APIVersion: "apiextensions.k8s.io/v1", Objects: []string{w.definition()},
	}
	w.Collections[modelPath] = &proxytest.FakeCollection{Kind: "WidgetList", APIVersion: "example.com/v1", Custom: true, Now: func() (int, []string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.revision, []string{w.item()}
	}}
	w.StopBookmarks(modelPath)
	w.SetDocument("/apis/example.com/v1", `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[`+
		`{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}`)
	w.SetDocument("/version", proxytest.VersionOf("v1.36.3"))
	var served *cluster.Cluster
	collections := snapshot.NewCollections(snapshot.Config{
		Client: &http.Client{Transport: proxytest.Transport(w.feed)},
		Base:   modelUpstream,
		Bytes:  memory,
		Limits: snapshot.Limits{History: time.Hour, Staleness: modelStaleness, Wait: 100 * time.Millisecond},
		Fields: func(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
			return served.Fields(ctx, gvr)
		},
		Settings:     func(schema.GroupVersionResource) snapshot.Settings { return snapshot.Settings{Watches: true} },
		Outage:       func() clock.Outage { return clock.Outage{} },
		SameTimeline: func(context.Context, uint64, time.Time) (same, soon bool) { return false, false },
		Log:          proxytest.DiscardLog(),
	})
	served, err := cluster.New(w.Config(), cluster.Config{
		Invalidate: collections.Invalidate, Verify: collections.Verify, Log: proxytest.DiscardLog(),
	})
	expect.NoError(t, err)
	compressor, err := gzip.NewCompressor(0)
	expect.NoError(t, err)
	w.handler = &Handler{
		Draining:    func() bool { return false },
		Unreachable: func() bool { return false },

		Policy: policy.DefaultConfig().WithSwitches(policy.Switches{ConsistentLists: policy.ConsistentAll, Watches: true}),

		ConsistentWait: 3 * time.Second,

		Cluster:     served,
		Collections: collections,
		Compressor:  compressor,
		Observer:    observetest.Unread(),
		Log:         proxytest.DiscardLog(),
		LogLimiter:  telemetry.NewLogLimiter(),
	}
	w.setRoom(t, 10_000, 24*time.Hour)
	w.setReviews(t, 24*time.Hour, func(r *http.Request) (*http.Response, error) {
		return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	})
	t.Cleanup(collections.Close)
	proxytest.RunInBubble(t, served.Run)
	return w
}

// setRoom sets the room for the bytes of answers, and the time for which an answer waits for room.
func (w *modelWorld) setRoom(t *testing.T, bytes int64, wait time.Duration) {
	t.Helper()
	w.handler.Limits = limits.New(limits.Config{Short: 10, Bytes: bytes, Wait: wait})
}

// takeRoom takes that many bytes of the room for two other callers, since one may not have all.
func (w *modelWorld) takeRoom(t *testing.T, bytes int) (release func()) {
	t.Helper()
	var taken []limits.Grant
	for flow := range byte(2) {
		room, err := w.handler.Limits.AcquireAnswer(t.Context(), limits.Flow{flow}, bytes/2)
		expect.NoError(t, err)
		taken = append(taken, room)
	}
	return func() {
		for i := range taken {
			taken[i].Release()
		}
	}
}

// setReviews sets the transport that answers all reviews from now on.
func (w *modelWorld) setReviews(t *testing.T, ttl time.Duration, answer proxytest.Transport) {
	t.Helper()
	w.handler.Authorizer = auth.NewAuthorizer(proxytest.SendWithCredentials[auth.Identity](answer), modelUpstream, auth.ReviewConfig{TTL: ttl, Timeout: 24 * time.Hour})
}

// startAuditing starts an audit log, in which all callers are alice.
func (w *modelWorld) startAuditing(t *testing.T) *auditSink {
	t.Helper()
	log := &auditSink{}
	who := auth.NewWhoAmI(proxytest.SendWithCredentials[auth.Identity](func(r *http.Request) (*http.Response, error) {
		return proxytest.AnswerWhoAmI(r, authenticationv1.UserInfo{Username: "alice"})
	}), modelUpstream, auth.ReviewConfig{})
	w.handler.AuditLog = observe.NewAuditLog(log)
	w.handler.WhoAmI = who
	return log
}

// delayProbes sets the delay of probes while the feed is running.
func (w *modelWorld) delayProbes(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probeDelay = delay
}

// load loads the resource into memory.
func (w *modelWorld) load(t *testing.T) {
	t.Helper()
	if _, why := w.handler.Collections.Use(modelWidgets); why != reason.None {
		t.Fatal(why)
	}
	time.Sleep(20 * time.Second)
}

// request returns a request for the resource.
func (w *modelWorld) request(ctx context.Context, query string) *http.Request {
	target := modelPath + "?" + strings.Replace(query, newestRevision, strconv.Itoa(w.revision), 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Accept", "application/json")
	return r
}

// newCaller returns the caller of a request that comes now.
func (w *modelWorld) newCaller(t *testing.T) *caller {
	t.Helper()
	identity := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer a")
	return &caller{
		Caller:    auth.Caller{Identity: identity, Accepted: true, Flow: auth.FlowOf(identity)},
		verdict:   auth.Accepted,
		lastProbe: w.handler.Collections.LastProbe(),
	}
}

// randomText returns n letters, which gzip cannot compress much.
func randomText(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	return string(text)
}

// fullDisk is a disk without room for the audit log.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
func (fullDisk) Close() error              { return nil }

// auditSink has what was written to the audit log.
type auditSink struct{ strings.Builder }

// Close implements [io.Closer].
func (*auditSink) Close() error { return nil }

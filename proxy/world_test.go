package proxy

import (
	"bytes"
	stdgzip "compress/gzip"
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
	"testing/synctest"
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
	"github.com/listproxy/listproxy/snapshot/watch"
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
	// streaming is a streaming list of the newest state.
	streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	// now stands for the newest revision in a query.
	now = "NOW"
)

var modelUpstream = &url.URL{Scheme: "https", Host: "upstream.example"}

// modelWorld is a cluster with one custom resource that has one object, and a Handler before it.
type modelWorld struct {
	*proxytest.FakeAPI
	handler *Handler
	// probeTakes is how long a probe of a feed takes, how far the API server is.
	probeTakes time.Duration

	mu         sync.Mutex
	generation int // of the definition
	revision   int
	// told counts what was told of definitions and APIServices.
	told int
	// failing: nothing can be loaded.
	failing bool
	// away: the API server does not answer feeds.
	away bool
	// compresses: streaming lists come with gzip.
	compresses bool
	// bulk makes the object long; it has nothing to escape.
	bulk string
}

func (w *modelWorld) item() string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",`+
		`"metadata":{"name":"a","namespace":"n","resourceVersion":"%d"},"spec":"%d%s"}`,
		w.revision, w.generation, w.bulk)
}

// feed answers a feed. A watch that is to go on where another one broke is told that this is too old.
func (w *modelWorld) feed(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	watches, of, initial := query.Get("watch") != "", query.Get("fieldSelector"), query.Get("sendInitialEvents") != ""
	if strings.Contains(of, "~") {
		w.mu.Lock()
		takes := w.probeTakes
		w.mu.Unlock()
		time.Sleep(takes)
	}
	w.mu.Lock()
	refuses := w.away || w.failing && of == "" && (initial || !watches)
	w.mu.Unlock()
	switch {
	case refuses:
		return nil, io.ErrUnexpectedEOF
	case watches && !initial && of == "":
		return proxytest.Refusal(r, http.StatusGone), nil
	case strings.Contains(r.Header.Get("Accept"), "protobuf"):
		return proxytest.Refusal(r, http.StatusNotAcceptable), nil
	}
	res, err := w.RoundTrip(r)
	if err == nil {
		res.Uncompressed = w.compresses && initial && of != "" // net/http has read it
	}
	return res, err
}

func (w *modelWorld) definition() string {
	return proxytest.Definition("widgets", "Namespaced", w.generation, w.told)
}

// change makes a change of the object at path: those who list it see it, and nobody is told.
func (w *modelWorld) change(path string, object func() string) (is string) {
	w.mu.Lock()
	w.revision++
	w.told++
	is = object()
	w.mu.Unlock()
	w.Hold(path, is)
	return is
}

// redefine changes the definition, and tells whoever follows it.
func (w *modelWorld) redefine() {
	w.Event(modelDefinitions, "MODIFIED", w.change(modelDefinitions, w.redefined))
}

func (w *modelWorld) redefined() string {
	w.generation++
	return w.definition()
}

// reroute has another server, or kube-apiserver itself, answer for the group.
func (w *modelWorld) reroute(service string) {
	w.Event(modelServices, "MODIFIED", w.change(modelServices, func() string { return w.route(service) }))
}

func (w *modelWorld) route(service string) string {
	return proxytest.APIService("v1", "example.com", service, w.told)
}

// drop has the state dropped, as after a self-check.
func (w *modelWorld) drop() {
	w.handler.Collections.Invalidate(snapshot.Invalidation{Cause: snapshot.CauseMismatch, Scope: snapshot.OfCollection(modelWidgets)})
}

// doubt makes nothing be told of definitions, until they flow again.
func (w *modelWorld) doubt() {
	w.Stall(modelDefinitions)
	w.End(modelDefinitions)
}

// cut ends the watches of feeds when something has happened.
func (w *modelWorld) cut(happened func()) {
	w.mu.Lock()
	happened()
	w.mu.Unlock()
	w.Cut(modelPath)
}

// lose makes feeds lose their state: a stream tells of what cannot be. It is loaded again after a time.
func (w *modelWorld) lose(again time.Duration) {
	w.mu.Lock()
	w.failing = true
	unknown := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"unknown","namespace":"n","resourceVersion":"%d"}}`, w.revision+1)
	w.mu.Unlock()
	w.Send(modelPath, "DELETED", unknown)
	w.Cut(modelPath)
	time.AfterFunc(again, func() { w.cut(func() { w.failing = false }) })
}

// write changes the object at the next revision, and tells feeds.
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

// newModelWorld returns a world in a bubble. Every review says yes.
func newModelWorld(t *testing.T) *modelWorld {
	t.Helper()
	return newTightWorld(t, 0)
}

// newTightWorld is newModelWorld with so many bytes for the cache; 0: without a bound.
func newTightWorld(t *testing.T, memory int64) *modelWorld {
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
	w.Silence(modelPath)
	w.Document("/apis/example.com/v1", `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[`+
		`{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}`)
	w.Document("/version", proxytest.VersionOf("v1.36.3"))
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

		Policy: policy.DefaultConfig().WithSwitches(policy.Switches{Consistent: policy.ConsistentAlways, Watches: true}),

		ConsistentWait: 3 * time.Second,

		Cluster:     served,
		Collections: collections,
		Compressor:  compressor,
		Observer:    observetest.Unread(),
		Log:         proxytest.DiscardLog(),
		LogLimiter:  telemetry.NewLogLimiter(),
	}
	w.bound(t, 10_000, 24*time.Hour)
	w.review(t, 24*time.Hour, func(r *http.Request) (*http.Response, error) {
		return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	})
	t.Cleanup(collections.Close)
	proxytest.RunInBubble(t, served.Run)
	return w
}

// bound sets how many bytes of answers there may be, and how long an answer waits for its part.
func (w *modelWorld) bound(t *testing.T, bytes int64, wait time.Duration) {
	t.Helper()
	w.handler.Limits = limits.New(limits.Config{Requests: 10, Bytes: bytes, Wait: wait})
}

// takeRoom takes all of so many bytes, for two others.
func (w *modelWorld) takeRoom(t *testing.T, bytes int) (release func()) {
	t.Helper()
	var taken []limits.Grant
	for of := range byte(2) {
		room, err := w.handler.Limits.Answer(t.Context(), limits.Flow{of}, bytes/2)
		expect.NoError(t, err)
		taken = append(taken, room)
	}
	return func() {
		for i := range taken {
			taken[i].Release()
		}
	}
}

// review has reviews answered so from now on.
func (w *modelWorld) review(t *testing.T, ttl time.Duration, answer proxytest.Transport) {
	t.Helper()
	w.handler.Authorizer = auth.NewAuthorizer(proxytest.SendAs[auth.Identity](answer), modelUpstream, auth.ReviewConfig{TTL: ttl, Timeout: 24 * time.Hour})
}

// audited has an audit log, in which all callers are alice.
func (w *modelWorld) audited(t *testing.T) *auditSink {
	t.Helper()
	log := &auditSink{}
	who := auth.NewWhoAmI(proxytest.SendAs[auth.Identity](func(r *http.Request) (*http.Response, error) {
		return proxytest.AnswerWhoAmI(r, authenticationv1.UserInfo{Username: "alice"})
	}), modelUpstream, auth.ReviewConfig{})
	w.handler.AuditLog, w.handler.WhoAmI = observe.NewAuditLog(log), who
	return log
}

// fullDisk takes no audit log.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
func (fullDisk) Close() error              { return nil }

// auditSink is what an audit log is written to.
type auditSink struct{ strings.Builder }

// Close implements [io.Closer].
func (*auditSink) Close() error { return nil }

// load makes the resource be in memory.
func (w *modelWorld) load(t *testing.T) {
	t.Helper()
	if _, why := w.handler.Collections.Use(modelWidgets); why != reason.None {
		t.Fatal(why)
	}
	time.Sleep(20 * time.Second)
}

// request is one for the resource.
func (w *modelWorld) request(ctx context.Context, query string) *http.Request {
	target := modelPath + "?" + strings.Replace(query, now, strconv.Itoa(w.revision), 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Accept", "application/json")
	return r
}

// caller returns who sends a request that comes now.
func (w *modelWorld) caller(t *testing.T) *caller {
	t.Helper()
	identity := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer a")
	return &caller{
		Caller:    auth.Caller{Identity: identity, Accepted: true, Flow: auth.FlowOf(identity, true, "")},
		verdict:   auth.Accepted,
		lastProbe: w.handler.Collections.LastProbe(), seat: &limits.Grant{},
	}
}

// client is who has sent a request, and what it was told.
type client struct {
	*httptest.ResponseRecorder
	encoding string        // that it accepts
	reads    time.Duration // it takes so long for the first bytes that it gets

	world *modelWorld
	begun time.Time
	leave context.CancelFunc
	// done gives when the request ended, since begun, and why it was not answered from memory if it was not.
	done  chan time.Duration
	why   reason.Reason
	ended time.Duration

	mu sync.Mutex
}

// Write implements io.Writer.
func (c *client) Write(p []byte) (int, error) {
	time.Sleep(c.reads)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = 0
	return c.ResponseRecorder.Write(p)
}

// told returns what it was told so far, in whole members if that is compressed.
func (c *client) told(t *testing.T) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return plain(t, c.ResponseRecorder)
}

// events is of how many events it was told so far.
func (c *client) events(t *testing.T) int { t.Helper(); return strings.Count(c.told(t), "\n") }

// plain is what was written, in whole members if it was compressed.
func plain(t *testing.T, out *httptest.ResponseRecorder) string {
	t.Helper()
	if out.Header().Get("Content-Encoding") != "gzip" {
		return out.Body.String()
	}
	read, err := stdgzip.NewReader(bytes.NewReader(out.Body.Bytes()))
	expect.NoError(t, err)
	text, err := io.ReadAll(read)
	if err != nil {
		t.Errorf("not in whole members: %v", err)
	}
	return string(text)
}

// open begins a request of a client, who leaves when the test ends.
func (w *modelWorld) open(t *testing.T, query string) *client {
	t.Helper()
	c := &client{}
	w.openAs(t, c, query)
	return c
}

// openAs begins a request of a client that takes its time, or an encoding.
func (w *modelWorld) openAs(t *testing.T, c *client, query string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	c.ResponseRecorder, c.world, c.begun, c.leave, c.done = httptest.NewRecorder(), w, time.Now(), leave, make(chan time.Duration, 1)
	t.Cleanup(leave)
	r := w.request(ctx, query)
	r.Header.Set("Accept-Encoding", c.encoding)
	who := w.caller(t)
	handler := w.handler.Observer.Observe(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		found, why := w.handler.decide(r, who)
		if c.why = why; why != reason.None {
			return
		}
		var s *watchStream
		if s, c.why = w.handler.answerFromMemory(out, r, who, found); s != nil {
			s.serve()
		}
	}), w.handler.Log)
	go func() {
		handler.ServeHTTP(c, r)
		c.done <- time.Since(c.begun)
	}()
	synctest.Wait()
}

// end waits for the end, at most until then after the beginning, and returns why it came, by what is
// counted; "" if it has not come.
func (c *client) end(t *testing.T, until time.Duration) watch.Ending {
	t.Helper()
	select {
	case c.ended = <-c.done:
	case <-time.After(until - time.Since(c.begun)):
		synctest.Wait() // what was written may be read now
		return ""
	}
	if c.why != "" {
		t.Fatalf("not from memory: %s", c.why)
	}
	for range 10 { // it may have to be loaded again first
		if _, why := c.world.handler.Collections.Use(modelWidgets); why == reason.None {
			break
		}
		time.Sleep(20 * time.Second)
	}
	for _, c := range c.world.handler.Collections.Stats() {
		for why := range c.Watches.Ended {
			return why
		}
	}
	t.Fatal("it is not counted that it has ended")
	return ""
}

// randomText is what gzip cannot make much shorter.
func randomText(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	return string(text)
}

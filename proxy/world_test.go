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
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	// modelStaleness is the age at which memory's newest state is too old to be answered.
	modelStaleness = 90 * time.Second
	// modelRoom is the number of bytes that all answers together may hold at a time, unless a test calls setRoom.
	modelRoom = 10_000

	// newestStreamingList is the query of a streaming list of the newest state, unless a resourceVersion is added.
	newestStreamingList = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	// newestRevision stands for the newest revision in a query. modelWorld.request replaces it.
	newestRevision = "NEWEST"
)

var modelUpstream = &url.URL{Scheme: "https", Host: "upstream.example"}

// modelWorld is a cluster with one object, a widget, and a Handler in front of it. It must be made in a synctest bubble, where
// time passes only while all goroutines wait. The embedded Hop is the API server as the Handler reaches it: it can be made to
// fail.
type modelWorld struct {
	*inmemory.Hop
	handler *Handler
	// probeDelay is the time from a probe (a request for the upstream's current revision) to its answer.
	probeDelay time.Duration

	mu sync.Mutex
	// loadsFail makes the loads of feeds fail. (A feed loads a resource into memory, and then watches it.)
	loadsFail bool
	// feedsFail makes all requests of feeds fail.
	feedsFail bool
	// compresses makes the API server compress streaming lists.
	compresses bool
	// bulk makes the widget long.
	bulk string
}

var modelWidgets = snapshot.CollectionKey{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Namespaced:           true, Representation: media.JSON,
}

// newModelWorld returns a modelWorld. Every review of a caller's right says yes.
func newModelWorld(t *testing.T) *modelWorld {
	t.Helper()
	const noBound = 0
	return newModelWorldWithMemory(t, noBound)
}

// newModelWorldWithMemory is newModelWorld with memory as --cache-bytes, in bytes. 0 means no bound.
func newModelWorldWithMemory(t *testing.T, memory int64) *modelWorld {
	t.Helper()
	controlPlane := inmemory.New(t)
	controlPlane.AddServer("v1.36.3").Start("v1.36.3")
	w := &modelWorld{Hop: inmemory.NewHop(t, controlPlane)}
	w.write()
	var served *cluster.Cluster // set below, before SelectableFields is called
	collections := snapshot.NewCollections(snapshot.Config{
		Client:   &http.Client{Transport: proxytest.Transport(w.feed)},
		Base:     modelUpstream,
		MaxBytes: memory,
		Limits:   snapshot.Limits{History: time.Hour, Staleness: modelStaleness, Wait: 100 * time.Millisecond},
		SelectableFields: func(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
			return served.Fields(ctx, gvr)
		},
		Settings:     func(schema.GroupVersionResource) snapshot.Settings { return snapshot.Settings{Watches: true} },
		Outage:       func() clock.Outage { return clock.Outage{} },
		SameTimeline: func(context.Context, uint64, time.Time) (same, proofMayCome bool) { return false, false },
		Log:          proxytest.DiscardLog(),
	})
	served, err := cluster.New(w.Config(), cluster.Config{
		Invalidate: collections.Invalidate, Verify: collections.Verify, Revoked: func(string) {}, Log: proxytest.DiscardLog(),
	})
	expect.NoError(t, err)
	compressor, err := gzip.NewCompressor(0)
	expect.NoError(t, err)
	w.handler = &Handler{
		Draining:    func() bool { return false },
		Unreachable: func() bool { return false },

		Policy: new(policy.File).Config(policy.Switches{ConsistentLists: policy.ConsistentAll, Watches: true}),

		ConsistentWait: 3 * time.Second,

		Cluster:     served,
		Collections: collections,
		Compressor:  compressor,
		Observer:    observetest.Unread(),
		Log:         proxytest.DiscardLog(),
		LogLimiter:  telemetry.NewLogLimiter(),
	}
	w.setRoom(modelRoom, 24*time.Hour)
	w.setReviews(24*time.Hour, func() bool { return true })
	t.Cleanup(collections.Close)
	proxytest.RunInBubble(t, served.Run)
	return w
}

// feed sends a request of a feed to the API server. A feed sends these requests:
//
//	load             a list or a streaming list of all objects
//	watch            a watch of all objects
//	probe            a list with a selector for a name that no object can have: the upstream's current revision
//	progress watch   a short watch with a selector: for its bookmark
func (w *modelWorld) feed(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	isStreaming := query.Get("sendInitialEvents") != ""
	selector := query.Get("fieldSelector")
	isLoad := selector == "" && (isStreaming || !query.Has("watch"))
	isProbe := strings.Contains(selector, "~")
	w.mu.Lock()
	delay := w.probeDelay
	w.mu.Unlock()
	if isProbe {
		time.Sleep(delay)
	}
	w.mu.Lock()
	fails := w.feedsFail || w.loadsFail && isLoad
	w.mu.Unlock()
	if fails {
		return nil, io.ErrUnexpectedEOF
	}
	res, err := w.RoundTrip(r)
	if err == nil {
		res.Uncompressed = w.compresses && isStreaming && selector != "" // as if net/http had decompressed it
	}
	return res, err
}

// redefine changes the definition of widgets.
func (w *modelWorld) redefine() {
	w.Define()
	synctest.Wait()
}

// reroute makes another server answer for the widgets' group, or kube-apiserver itself if service is empty.
func (w *modelWorld) reroute(service string) {
	w.Put(inmemory.APIServices, inmemory.APIService("v1", "example.com", service))
	synctest.Wait()
}

// stallDefinitions breaks the watch of definitions, and sends nothing on the next one.
func (w *modelWorld) stallDefinitions() {
	w.Stall(inmemory.Definitions.Path)
	w.End(inmemory.Definitions.Path)
}

// changeAndCutFeeds makes a change to w, and then breaks the watches of feeds off.
func (w *modelWorld) changeAndCutFeeds(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.Cut(inmemory.Widgets.Path)
}

// loseState makes feeds lose their state, by an event that contradicts it: an object is deleted that does not exist. Loads fail
// until reloadAfter has passed.
func (w *modelWorld) loseState(reloadAfter time.Duration) {
	w.mu.Lock()
	w.loadsFail = true
	w.mu.Unlock()
	unknown := inmemory.Event{
		Type: "DELETED", Object: inmemory.Object{Namespace: "n", Name: "unknown"}, Revision: w.Revision() + 1,
	}
	w.Send(inmemory.Widgets.Path, unknown.Write(inmemory.Widgets, inmemory.Form{}))
	w.Cut(inmemory.Widgets.Path)
	time.AfterFunc(reloadAfter, func() { w.changeAndCutFeeds(func() { w.loadsFail = false }) })
}

// write changes the widget.
func (w *modelWorld) write() {
	w.Put(inmemory.Widgets, inmemory.Object{Namespace: "n", Name: "a", MoreMeta: fmt.Sprintf(`"annotations":{"bulk":%q},`, w.bulk)})
}

// writeBulk makes the widget longer than this size, from now on. gzip cannot compress it much.
func (w *modelWorld) writeBulk(size int) {
	w.bulk = randomText(size)
	w.write()
}

// setRoom sets the room for the bytes of answers, and the time for which an answer waits for room.
func (w *modelWorld) setRoom(bytes int64, wait time.Duration) {
	w.handler.Limits = limits.New(limits.Config{Short: 10, Bytes: bytes, MaxWait: wait})
}

// roomInUse returns the number of bytes of the room that answers have taken.
func (w *modelWorld) roomInUse() int64 { return w.handler.Limits.Stats()["bytes"].InUse }

// takeRoom takes bytes of the room, half for each of two other callers, since one caller may not have all.
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

// setReviews makes allow answer all reviews from now on. Their answers are remembered for ttl.
func (w *modelWorld) setReviews(ttl time.Duration, allow func() bool) {
	w.sendReviews(ttl, func(r *http.Request) (*http.Response, error) {
		return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: allow()})
	})
}

// sendReviews sends all reviews by transport from now on.
func (w *modelWorld) sendReviews(ttl time.Duration, transport proxytest.Transport) {
	config := auth.ReviewConfig{TTL: ttl, Timeout: 24 * time.Hour}
	w.handler.Authorizer = auth.NewAuthorizer(proxytest.SendWithCredentials[auth.Identity](transport), modelUpstream, config)
}

// startAuditing starts an audit log, in which all callers are alice.
func (w *modelWorld) startAuditing() *auditSink {
	log := &auditSink{}
	w.handler.WhoAmI = auth.NewWhoAmI(proxytest.SendWithCredentials[auth.Identity](func(r *http.Request) (*http.Response, error) {
		return proxytest.AnswerWhoAmI(r, authenticationv1.UserInfo{Username: "alice"})
	}), modelUpstream, auth.ReviewConfig{})
	w.handler.AuditLog = observe.NewAuditLog(log)
	return log
}

// delayProbes sets probeDelay while feeds are running.
func (w *modelWorld) delayProbes(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probeDelay = delay
}

// load loads the widgets into memory. That takes less than 20 s.
func (w *modelWorld) load(t *testing.T) {
	t.Helper()
	if _, why := w.handler.Collections.Use(modelWidgets); why != reason.None {
		t.Fatal(why)
	}
	time.Sleep(20 * time.Second)
}

// request returns a request for the widgets.
func (w *modelWorld) request(ctx context.Context, query string) *http.Request {
	target := inmemory.Widgets.Path + "?" + strings.Replace(query, newestRevision, strconv.FormatInt(w.Revision(), 10), 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Accept", "application/json")
	return r
}

// respond returns the handler's answer to a request of the caller who.
func (w *modelWorld) respond(t *testing.T, query string, who *caller) *httptest.ResponseRecorder {
	t.Helper()
	out := httptest.NewRecorder()
	handler := kubehttp.WithRequest(w.handler.Observer.Observe(http.HandlerFunc(w.handler.respond), w.handler.Log))
	handler.ServeHTTP(out, withCaller(w.request(t.Context(), query), who))
	return out
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

// auditSink keeps what is written to the audit log.
type auditSink struct{ strings.Builder }

// Close implements [io.Closer].
func (*auditSink) Close() error { return nil }

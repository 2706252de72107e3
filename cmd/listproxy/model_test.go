package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// The model has listproxy, as main assembles it, between clients and a control plane in memory. Listers (modellists_test.go)
// and watchers (modelwatches_test.go) check every answer from memory, while faults (modelfaults_test.go) happen. A restore of
// etcd begins another timeline, on which the revisions after the restored one are given anew, to other changes.

const (
	// modelMaxAge bounds the age of a list at resourceVersion=0: the default of --staleness-bound, and the time for the
	// answer.
	modelMaxAge = 90*time.Second + 5*time.Second
	// modelDefinitionLag bounds the time for which objects may have the form of an old definition. API servers, and then
	// listproxy, learn of a changed definition after some seconds.
	modelDefinitionLag = 30 * time.Second
	// modelReleaseLag bounds the time for which objects may have the form of a release that is gone. Until then listproxy
	// verifies what it keeps.
	modelReleaseLag = 12 * time.Minute
	// modelReviewTTL is the default of --review-ttl.
	modelReviewTTL = 10 * time.Second
	// modelAnswerTime bounds the time from listproxy's decision about a list until its answer has come.
	modelAnswerTime = 2 * time.Second
	// modelWatchRevocation bounds the time for which a watch goes on after the right was revoked.
	modelWatchRevocation = 2 * time.Minute
	// modelMinRestore is the shortest time in which somebody can stop the API servers, restore etcd and start them. listproxy
	// relies on this: it takes a watch that opens within 10 s of the end of the last one (minRestoreTime in package snapshot)
	// to be on the same timeline.
	modelMinRestore = 10 * time.Second
	// modelNoticeLag bounds the time until listproxy notices that an upstream can be reached again.
	modelNoticeLag = 15 * time.Second
)

// modelStart is the time at which every synctest bubble starts.
var modelStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// firstRelease is the release of all API servers at the start.
const firstRelease = "v1.36.0"

// model is a running listproxy with its control plane, and a record of what has happened.
type model struct {
	t      *testing.T
	plane  *inmemory.ControlPlane
	front  *inmemory.Listener // on which listproxy serves clients
	client *http.Client       // sends the requests of listproxy's clients
	// outage returns listproxy's record of the current outage: no API server answers. If there is none, it returns the last
	// outage.
	outage   func() clock.Outage
	releases int // the number of new releases so far; only faults use it

	mu         sync.Mutex // guards the fields below
	log        []string
	counts     map[string]int // the number of calls of count, by their argument
	restoredAt time.Time      // the end of the last restore; zero during one, and if there was none
	quietSince time.Time      // the end of the last fault; zero during one
	onTheWay   map[int]int    // the number of answers on their way to listproxy, by the timeline of their request
}

// currentTimeline returns etcd's current timeline.
func (m *model) currentTimeline() int { return m.plane.Timelines() - 1 }

// newModel starts listproxy in front of a control plane with this number of servers. All requests of listproxy to them go
// through the transport that wrap returns. The model ends with the test.
func newModel(t *testing.T, servers int, wrap func(*model, http.RoundTripper) http.RoundTripper) *model {
	m := &model{
		t: t, plane: inmemory.New(t), front: inmemory.NewListener(), counts: map[string]int{}, onTheWay: map[int]int{},
	}
	for range servers {
		m.plane.AddServer(firstRelease).Start(firstRelease)
	}
	m.plane.Allow("alice", true)
	m.plane.Allow("carol", true)

	// Assemble listproxy as main does, but with the control plane as its upstream.
	o, err := parse("--watches", "--consistent-lists=always", "--self-check-interval=0", "--idle-timeout=0")
	expect.NoError(t, err)
	discard := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	ins, err := newInstruments(ctx, discard)
	expect.NoError(t, err)
	config := m.plane.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return wrap(m, next) })
	api, err := o.newAPIServer(config, discard)
	expect.NoError(t, err)
	m.outage = api.health.Outage
	a, err := o.assemble(api, &ports{}, ins, discard)
	expect.NoError(t, err)

	// Run its parts until the test ends.
	var parts sync.WaitGroup
	parts.Go(func() { api.transports.Run(ctx, discard) })
	parts.Go(func() { api.health.Run(ctx) })
	parts.Go(func() { a.cache.cluster.Run(ctx) })
	server := serve.New(a.handler, nil, discard)
	parts.Go(func() { _ = server.Serve(m.front) })
	transport := &http.Transport{DialContext: m.front.Dial, DisableCompression: true, MaxIdleConnsPerHost: 100}
	m.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		_ = server.Close()
		a.close()
		ins.close(discard)
		for _, s := range m.plane.Servers() {
			s.Stop()
		}
		parts.Wait()
		time.Sleep(time.Hour) // goroutines that were given up end by their timeouts
	})
	return m
}

// elapsed returns the time since the start of the bubble, for the log.
func elapsed() string { return fmt.Sprintf("%8.1fs", time.Since(modelStart).Seconds()) }

// logf records what happens, for the message of a failure.
func (m *model) logf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, elapsed()+" "+fmt.Sprintf(format, args...))
}

// failf fails the test, with the end of the log. Only the first failure is reported.
func (m *model) failf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.t.Failed() {
		return
	}
	const shownLines = 40
	end := m.log[max(0, len(m.log)-shownLines):]
	m.t.Errorf("%s %s\nbefore:\n  %s", elapsed(), fmt.Sprintf(format, args...), strings.Join(end, "\n  "))
}

// count counts one event named what ("watch", "no answer"), for the checks at the end of the test.
func (m *model) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
}

// countOf returns how often the event named what has been counted.
func (m *model) countOf(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[what]
}

// get sends a request to listproxy as a user.
func (m *model) get(ctx context.Context, user, path string, q url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://listproxy"+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+user)
	r.Header.Set("Accept", "application/json")
	return m.client.Do(r)
}

// isFromMemory reports whether listproxy has answered from memory.
func isFromMemory(r *http.Response) bool {
	return strings.Contains(r.Header.Get("Cache-Status"), "; hit")
}

// widgetsPath returns the path of widgets in a namespace, or of all widgets if the namespace is empty.
func widgetsPath(namespace string) string {
	if namespace == "" {
		return inmemory.Widgets.Path
	}
	return "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
}

// oneOf returns one of the values, each with the same chance.
func oneOf[T any](values ...T) T { return values[rand.IntN(len(values))] }

// oneIn returns true once in n times, on average.
func oneIn(n int) bool { return rand.IntN(n) == 0 }

// pause sleeps for a random time below limit.
func pause(limit time.Duration) { time.Sleep(rand.N(limit)) }

// runWriter writes widgets until ctx ends, with long pauses between bursts.
func (m *model) runWriter(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 + rand.IntN(20) {
			m.writeWidget()
			pause(3 * time.Second)
		}
		if oneIn(3) {
			pause(5 * time.Minute)
		}
	}
}

// writeWidget creates, updates or deletes one widget. It does nothing if no server is up.
func (m *model) writeWidget() {
	if m.plane.Up() == 0 {
		return
	}
	widget := inmemory.Object{
		Namespace: oneOf("one", "two", "two-b"),
		Name:      strconv.Itoa(rand.IntN(6)),
		Color:     oneOf("", "red", "green"),
	}
	if oneIn(4) {
		m.plane.Delete(inmemory.Widgets, widget)
	} else {
		m.plane.Put(inmemory.Widgets, widget)
	}
}

// TestModel: whatever happens to the control plane, each list and each event from memory is one that some API server
// could have sent. When all faults are over, lists come from memory again.
func TestModel(t *testing.T) {
	runs := 12
	if testing.Short() {
		runs = 3
	}
	counts := map[string]int{}
	for range runs {
		synctest.Test(t, func(t *testing.T) { runModel(t, counts) })
		if t.Failed() {
			break
		}
	}
	t.Log(counts)
	for _, what := range []string{
		"Any", "NotOlderThan", "Exact", "Consistent", "Continue", "streaming list", "watch", "events",
	} {
		if counts[what] == 0 && !t.Failed() {
			t.Errorf("%q: got none from memory, want at least one", what)
		}
	}
}

// runModel runs one model through many faults, and adds what the model has counted to counts.
func runModel(t *testing.T, counts map[string]int) {
	var isHealthy atomic.Bool
	m := newModel(t, 1+rand.IntN(3), func(m *model, next http.RoundTripper) http.RoundTripper {
		return unreliableTransport{RoundTripper: next, model: m, isHealthy: &isHealthy}
	})
	for range 20 { // some widgets to begin with
		m.writeWidget()
	}
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for _, user := range []string{"alice", "carol", "alice"} {
		clients.Go(func() { m.runLister(ctx, user) })
		clients.Go(func() { m.runWatcher(ctx, user) })
	}
	clients.Go(func() { m.runWriter(ctx) })
	// Faults begin after 15 s. listproxy cannot notice a definition that changes while it starts.
	time.Sleep(15 * time.Second)
	const faults = 25
	for range faults {
		if !t.Failed() {
			m.runFault()
		}
	}
	isHealthy.Store(true)
	if !t.Failed() {
		m.checkRecovery()
	}
	stop()
	clients.Wait()
	for what, n := range m.counts {
		counts[what] += n
	}
}

// checkRecovery ends all faults, and fails the test unless lists come from memory some time later.
func (m *model) checkRecovery() {
	const recoveryTime = 20 * time.Minute
	for _, s := range m.plane.Servers() {
		s.Heal()
	}
	time.Sleep(recoveryTime)
	for _, semantics := range []string{"Any", "Consistent"} {
		before := m.countOf(semantics)
		m.list(context.Background(), listRequest{user: "alice", semantics: semantics}, firstPage)
		if m.countOf(semantics) == before {
			m.failf("%v after the last fault, lists with the semantics %s are still forwarded", recoveryTime, semantics)
		}
	}
}

// TestNoRedirectIsFollowed: no client with listproxy's own credentials follows a redirect, not even one to the same server.
func TestNoRedirectIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var redirected sync.Map // the paths whose first request was redirected; further requests are answered
		m := newModel(t, 1, func(_ *model, next http.RoundTripper) http.RoundTripper {
			return proxytest.Transport(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Authorization") == "Bearer alice" {
					return next.RoundTrip(r)
				}
				if r.URL.Path == "/elsewhere" {
					t.Error("a redirect was followed")
				}
				if _, again := redirected.LoadOrStore(r.URL.Path, true); again {
					return next.RoundTrip(r)
				}
				redirect := inmemory.Answer(r, http.StatusFound, "{}")
				redirect.Header.Set("Location", "/elsewhere")
				return redirect, nil
			})
		})
		time.Sleep(15 * time.Minute)
		m.list(t.Context(), listRequest{user: "alice", semantics: "Any"}, firstPage)
		time.Sleep(time.Minute)
		const rbac = "/apis/rbac.authorization.k8s.io/v1/"
		for _, path := range []string{
			inmemory.Widgets.Path, "/api/v1", "/readyz", "/version", "/apis/apiregistration.k8s.io/v1/apiservices",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
			"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", rbac + "roles", rbac + "rolebindings",
		} {
			if _, ok := redirected.Load(path); !ok {
				t.Errorf("listproxy did not request %s, so the client for it was not tested", path)
			}
		}
	})
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

const (
	// maxCallers is the number of callers at a time.
	maxCallers = 3
	// callerPause is the time between the end of one caller and the beginning of the next.
	callerPause = time.Second
	// collectionsPerCaller is the number of collections that a caller asks for.
	collectionsPerCaller = 2
	// Every 10 s (generationInterval) new objects are created, three of each kind: a generation. Three generations live at a
	// time (liveGenerations), so when generation-7 is created, generation-4 is deleted.
	generationInterval   = 10 * time.Second
	liveGenerations      = 3
	objectsPerGeneration = 3
	// idleTimeout is the --idle-timeout of a soak: longer than the longest request of the askers.
	idleTimeout = requestTimeout + 5*time.Second
	// unloadedTime is the time for which listproxy does not have the idling collection in memory, before the turnover lists it
	// again.
	unloadedTime = 5 * time.Second
	// upstreamIdleTimeout is the time after which listproxy closes an unused connection to the API server.
	upstreamIdleTimeout = 90 * time.Second
	// samplesPerRest is the number of samples that are taken at the end of a rest, one a second.
	samplesPerRest = 10
)

// idling is the collection that idles out: listproxy drops a collection for which nobody asks for --idle-timeout, and loads it
// again at the next request. Only the turnover asks for it.
var idling = collection{Kind: kind{APIVersion: "v1", Name: "LimitRange", Plural: "limitranges"}, Representation: load.AsJSON}

// turnover makes things come and go while a soak runs:
//
//   - callers, each with its own token and connection
//   - accounts, namespaces and values of labels
//   - a collection that idles out and is loaded again
//
// If listproxy kept something of each of these for ever, its memory would grow. Safe for concurrent use.
type turnover struct {
	*scene

	stop   func()
	newest atomic.Value // the newest generation, a string

	// What has come and gone so far.
	callers, deletedGenerations, idleOuts atomic.Int64
}

// startTurnover starts a turnover, which goes on until its stop is called, or the test ends.
func (s *scene) startTurnover() *turnover {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	t := &turnover{scene: s}
	callers := controlplane.Grant{To: []string{"group:system:serviceaccounts"}}
	for _, k := range changing {
		callers.Rules = append(callers.Rules, controlplane.Rule("list,watch", k.Group(), k.Plural))
	}
	s.must(t.plane.GrantAll(ctx, callers))
	t.createGeneration(ctx, generation(0))
	var running sync.WaitGroup
	running.Go(func() { t.turnGenerations(ctx) })
	for range maxCallers {
		running.Go(func() { t.runCallers(ctx) })
	}
	running.Go(func() { t.idleOutAndLoad(ctx) })
	t.stop = func() {
		cancel()
		running.Wait()
	}
	s.Cleanup(t.stop)
	return t
}

// generation returns the name of a generation, which is the value of [load.GenerationLabel] of its objects.
func generation(n int) string { return "generation-" + strconv.Itoa(n) }

// turnGenerations creates generations of objects, and deletes the oldest, until ctx ends.
func (t *turnover) turnGenerations(ctx context.Context) {
	for n := 1; clock.Sleep(ctx, generationInterval); n++ {
		t.pauseWrites.RLock()
		t.createGeneration(ctx, generation(n))
		if n >= liveGenerations {
			t.deleteGeneration(ctx, generation(n-liveGenerations))
		}
		t.pauseWrites.RUnlock()
	}
}

// createGeneration creates the objects of a generation. It ignores errors: some objects may be missing.
func (t *turnover) createGeneration(ctx context.Context, name string) {
	for _, k := range changing {
		for i := range objectsPerGeneration {
			object := k.Object(fmt.Sprintf("%s-%d", name, i))
			object["metadata"].(kinds.Fields)["labels"] = kinds.Fields{load.GenerationLabel: name}
			_, _ = t.Write(ctx, t.direct, k, http.MethodPost, k.Path(t.namespaces[0]), object)
		}
	}
	t.newest.Store(name)
}

// deleteGeneration deletes the objects of a generation.
func (t *turnover) deleteGeneration(ctx context.Context, name string) {
	for _, k := range changing {
		target := k.Path(t.namespaces[0]) + "?gracePeriodSeconds=0&labelSelector=" + load.GenerationLabel + "%3D" + name
		if err := poll.Retry(ctx, "deleting "+name, func() error {
			_, err := t.direct.Do(ctx, http.MethodDelete, target, nil)
			return err
		}); err != nil && ctx.Err() == nil {
			t.Tally.AddMistake("%v", err)
		}
	}
	t.deletedGenerations.Add(1)
}

// runCallers runs one caller after the other until ctx ends.
func (t *turnover) runCallers(ctx context.Context) {
	for clock.Sleep(ctx, callerPause) {
		if t.runCaller(ctx, t.newest.Load().(string)) == nil {
			t.callers.Add(1)
		}
	}
}

// runCaller runs one caller with its own token and connection, who sends lists and a watch. During generation-7, for example,
// the caller is the service account generation-7. It lists in the namespace generation-7, which does not exist, and selects the
// objects with the label generation=generation-7. So listproxy sees a new caller, a new namespace and a new selector in each
// generation.
func (t *turnover) runCaller(ctx context.Context, generation string) error {
	t.pauseWrites.RLock()
	tokenCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	token, err := t.plane.CreateServiceAccountToken(tokenCtx, t.namespaces[0], generation)
	cancel()
	t.pauseWrites.RUnlock()
	if err != nil {
		return err
	}
	t.pauseAsks.RLock()
	defer t.pauseAsks.RUnlock()
	connections := &http.Transport{ForceAttemptHTTP2: t.callers.Load()%2 == 0} // every other caller
	client, leave, err := t.newClient(token, connections)
	if err != nil {
		t.Tally.AddMistake("a caller has no client: %v", err)
		return err
	}
	defer leave()
	for range collectionsPerCaller {
		c := randomCollection()
		_, _, _ = t.Ask(ctx, client, question{Collection: c, Namespace: generation, Query: ask.AnyVersion}, noMinRevision)
		newest := t.Ledger.Newest(c.Kind)
		_, _, _ = t.Ask(ctx, client, question{Collection: c, Generation: generation, Query: ask.NotOlderThan(newest)}, newest)
	}
	// Followers check the events of watches. This watch must only end in order.
	_, err = client.Get(ctx, pods.Path(generation)+"?timeoutSeconds=1&watch=true")
	return err
}

// newClient returns a client of listproxy with its own connections, which leave closes. connections says how they behave;
// newClient adds the TLS configuration and the timeout.
func (s *scene) newClient(token string, connections *http.Transport) (client *ask.Client, leave func(), err error) {
	connections.TLSClientConfig, err = rest.TLSConfigFor(rest.AnonymousClientConfig(s.proxiedConfig))
	if err != nil {
		return nil, nil, err
	}
	connections.IdleConnTimeout = unloadedTime // for a connection that is still in use when leave is called
	return &ask.Client{
		Base: s.proxiedConfig.Host, Timeout: requestTimeout,
		HTTP: &http.Client{Transport: transport.NewBearerAuthRoundTripper(token, connections)},
	}, connections.CloseIdleConnections, nil
}

// idleOutAndLoad lists the idling collection, waits until it has idled out, and lists it again, until ctx ends.
func (t *turnover) idleOutAndLoad(ctx context.Context) {
	for ctx.Err() == nil {
		t.pauseAsks.RLock()
		q := question{Collection: idling, Generation: t.newest.Load().(string), Query: ask.AnyVersion}
		err := poll.Retry(ctx, "an answer from memory of the idling collection", func() error {
			return t.requireHit(ctx, q)
		})
		t.askAndForget(ctx, q, noMinRevision) // the verifier compares this answer
		t.pauseAsks.RUnlock()
		if err == nil {
			err = t.awaitIdleOut(ctx)
		}
		switch {
		case err == nil:
			t.idleOuts.Add(1)
			clock.Sleep(ctx, unloadedTime)
		case ctx.Err() == nil:
			t.Tally.AddMistake("%s: %v", q, err)
		}
	}
}

// awaitIdleOut waits until listproxy has dropped the idling collection.
func (t *turnover) awaitIdleOut(ctx context.Context) error {
	return poll.Try(ctx, patience, time.Second, "the idling collection to be dropped", func() error {
		_, series, err := t.firstProxy().Metric(ctx, "listproxy_collection_live", map[string]string{"resource": idling.Kind.Plural})
		if err == nil && series > 0 {
			err = errors.New("it has a metric")
		}
		return err
	})
}

// rest pauses writers, followers and askers. It waits until listproxy has released what it keeps only for a time: callers,
// rights, history, connections and the idling collection. Only the usual collections are left. Then it takes samples.
func (t *turnover) rest(number int) (samples []soak.Sample) {
	t.Helper()
	t.pauseWrites.Lock()
	defer t.pauseWrites.Unlock()
	t.pauseAsks.Lock()
	defer t.pauseAsks.Unlock()
	t.pauseAnyVersion.Lock()
	defer t.pauseAnyVersion.Unlock()
	t.awaitConverged()
	t.stopFollowers() // a forwarded watch has its own connection to the API server
	defer t.follow()
	for begun := time.Now(); time.Since(begun) < upstreamIdleTimeout; { // history and rights expire sooner
		t.listUsual()
		clock.Sleep(t.Context(), idleTimeout/3)
	}
	t.must(t.awaitIdleOut(t.Context()))
	t.listUsual()
	for range samplesPerRest {
		clock.Sleep(t.Context(), time.Second)
		sample, err := soak.TakeSample(t.Context(), t.firstProxy().AdminURL())
		t.must(err)
		sample.Rest, sample.Upstream = number, float64(t.hop.Connections())
		samples = append(samples, sample)
	}
	harness.Log(fmt.Sprintf("soak: rest %d: %.0f goroutines, %.1f MiB of heap", number, samples[0].Goroutines, samples[0].Heap/(1<<20)))
	return samples
}

// listUsual lists every collection that askers and followers use, so that none idles out. Samples of two rests can be compared
// only if listproxy has the same collections in memory.
func (t *turnover) listUsual() {
	t.Helper()
	ofMetadataInformers := load.Representation{Accept: ask.Protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
	for _, c := range append(collections(), collection{Kind: configMaps, Representation: ofMetadataInformers}) {
		t.must(poll.Retry(t.Context(), "an answer from memory", func() error {
			return t.requireHit(t.Context(), question{Collection: c, Query: ask.AnyVersion})
		}))
	}
}

// judge reports what has come and gone, and fails the test if anything never did.
func (t *turnover) judge() {
	callers := t.callers.Load()
	generations, idleOuts := t.deletedGenerations.Load(), t.idleOuts.Load()
	summary := fmt.Sprintf("%d callers came and went, each with its own token and connection; %d generations of objects were deleted; "+
		"a collection idled out %d times", callers, generations, idleOuts)
	harness.Log("soak: " + summary)
	if callers == 0 || generations == 0 || idleOuts == 0 {
		t.Errorf("%s: let it run longer", summary)
	}
}

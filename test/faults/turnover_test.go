package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

const (
	// lanes is how many callers are there at a time, at most, and callerEvery how long after one
	// the next comes.
	lanes       = 3
	callerEvery = time.Second
	// asksOf is how many collections each asks for.
	asksOf = 2
	// generationEvery is how often some objects come and others go, of which there are generations at a
	// time, with so many objects of each kind.
	generationEvery = 10 * time.Second
	generations     = 3
	ofGeneration    = 3
	// idleTimeout is the --idle-timeout of a soak: longer than those wait who ask all the time.
	idleTimeout = requestTimeout + 5*time.Second
	// goneFor is how long nobody asks for a collection that was given up.
	goneFor = 5 * time.Second
	// unusedFor is how long listproxy keeps a connection to the API server that nobody uses.
	unusedFor = 90 * time.Second
	// Each second of a rest is measured, once all is gone that goes.
	samplesOfARest = 10
)

// idling is a collection that comes and goes: nobody else asks for it.
var idling = collection{Kind: kind{APIVersion: "v1", Name: "LimitRange", Plural: "limitranges"}, Form: load.AsJSON}

// turnover is what comes and goes while a soak runs: callers, each with a token and a connection of
// its own; accounts, namespaces that are asked for, and values of labels; and a collection, which idles
// out and comes again.
// Whatever is kept by one of these, and never let go, grows. Safe for concurrent use.
type turnover struct {
	*scene

	end                       func()       // ends it
	newest                    atomic.Value // the newest generation, a string
	callers, ended, idledAway atomic.Int64
}

// turnOver begins a turnover, which goes on until its end is called, or the test ends.
func (s *scene) turnOver() *turnover {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	t := &turnover{scene: s}
	everybody := controlplane.Grant{To: []string{"group:system:serviceaccounts"}}
	for _, k := range changing {
		everybody.Rules = append(everybody.Rules, controlplane.Rule("list,watch", k.Group(), k.Plural))
	}
	s.must(t.plane.GrantAll(ctx, everybody))
	t.begin(ctx, generation(0))
	var all sync.WaitGroup
	all.Go(func() { t.generate(ctx) })
	for range lanes {
		all.Go(func() { t.callAll(ctx) })
	}
	all.Go(func() { t.comeAndGo(ctx) })
	t.end = func() {
		cancel()
		all.Wait()
	}
	s.Cleanup(t.end)
	return t
}

// generation is the value of the label on some objects, and begins their names.
func generation(n int) string { return "generation-" + strconv.Itoa(n) }

// generate makes objects of a new generation, and removes those of the oldest, until ctx ends.
func (t *turnover) generate(ctx context.Context) {
	for n := 1; clock.Sleep(ctx, generationEvery); n++ {
		t.writing.RLock()
		t.begin(ctx, generation(n))
		if n >= generations {
			t.remove(ctx, generation(n-generations))
		}
		t.writing.RUnlock()
	}
}

// begin makes the objects of a generation. One that fails is missing, and that is all.
func (t *turnover) begin(ctx context.Context, name string) {
	for _, k := range changing {
		for i := range ofGeneration {
			object := k.Object(fmt.Sprintf("%s-%d", name, i))
			object["metadata"].(fieldsOf)["labels"] = fieldsOf{load.GenerationLabel: name}
			_, _ = t.Write(ctx, t.direct, k, http.MethodPost, k.Path(t.namespaces[0]), object)
		}
	}
	t.newest.Store(name)
}

func (t *turnover) remove(ctx context.Context, name string) {
	for _, k := range changing {
		all := k.Path(t.namespaces[0]) + "?gracePeriodSeconds=0&labelSelector=" + load.GenerationLabel + "%3D" + name
		if err := poll.Retry(ctx, "the end of "+name, func() error {
			_, err := t.direct.Do(ctx, http.MethodDelete, all, nil)
			return err
		}); err != nil && ctx.Err() == nil {
			t.Tally.Wrong("%v", err)
		}
	}
	t.ended.Add(1)
}

// callAll lets one caller after the other come, until ctx ends.
func (t *turnover) callAll(ctx context.Context) {
	for clock.Sleep(ctx, callerEvery) {
		if t.call(ctx, t.newest.Load().(string)) == nil {
			t.callers.Add(1)
		}
	}
}

// call is one caller's life: a token and a connection of its own, some questions, and a watch. The
// account, and a namespace that it asks for, have the name of a generation.
func (t *turnover) call(ctx context.Context, generation string) error {
	t.writing.RLock()
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	token, err := t.plane.CreateServiceAccountToken(bounded, t.namespaces[0], generation)
	cancel()
	t.writing.RUnlock()
	if err != nil {
		return err
	}
	t.asking.RLock()
	defer t.asking.RUnlock()
	// Every other one speaks HTTP/2.
	via, leave, err := t.stranger(token, &http.Transport{ForceAttemptHTTP2: t.callers.Load()%2 == 0})
	if err != nil {
		t.Tally.Wrong("a caller cannot come: %v", err)
		return err
	}
	defer leave()
	all := collections()
	for range asksOf {
		c := all[rand.IntN(len(all))]
		_, _, _ = t.Put(ctx, via, question{Collection: c, Namespace: generation, Query: ask.AnyVersion}, 0)
		newest := t.Ledger.Newest(c.Kind)
		_, _, _ = t.Put(ctx, via, question{Collection: c, Generation: generation, Query: ask.NotOlderThan(newest)}, newest)
	}
	// What it says is the followers' matter.
	_, err = via.Get(ctx, pods.Path(generation)+"?timeoutSeconds=1&watch=true")
	return err
}

// stranger is a client whose connections nobody else uses, and end with leave.
func (s *scene) stranger(token string, connections *http.Transport) (via *ask.Client, leave func(), err error) {
	if connections.TLSClientConfig, err = rest.TLSConfigFor(rest.AnonymousClientConfig(s.viaConfig)); err != nil {
		return nil, nil, err
	}
	connections.IdleConnTimeout = goneFor // of one that a request that was given up leaves behind
	return &ask.Client{
		Base: s.viaConfig.Host, Timeout: requestTimeout,
		HTTP: &http.Client{Transport: transport.NewBearerAuthRoundTripper(token, connections)},
	}, connections.CloseIdleConnections, nil
}

// comeAndGo asks for a collection that nobody else asks for, leaves it until listproxy has given it up,
// and asks again, until ctx ends.
func (t *turnover) comeAndGo(ctx context.Context) {
	for ctx.Err() == nil {
		t.asking.RLock()
		q := question{Collection: idling, Generation: t.newest.Load().(string), Query: ask.AnyVersion}
		err := poll.Retry(ctx, "an answer from memory of what comes and goes", func() error {
			return t.fromMemory(ctx, q)
		})
		t.put(ctx, q, 0)
		t.asking.RUnlock()
		if err == nil {
			if err = t.idlesOut(ctx); err == nil {
				t.idledAway.Add(1)
				clock.Sleep(ctx, goneFor)
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Tally.Wrong("%s: %v", q, err)
		}
	}
}

// idlesOut waits until listproxy has given up the collection that comes and goes.
func (t *turnover) idlesOut(ctx context.Context) error {
	return poll.Try(ctx, patience, time.Second, "the end of a collection that nobody asks for", func() error {
		_, series, err := t.proxies.All()[0].Metric(ctx, "listproxy_collection_live", map[string]string{"resource": idling.Kind.Plural})
		if err == nil && series > 0 {
			err = errors.New("it is there")
		}
		return err
	})
}

// rest lets nobody write, watch or ask, but now and then for what is always asked for. When all that
// comes and goes is gone (callers, what they were allowed, the collection, history and connections) it
// measures what listproxy takes.
func (t *turnover) rest(number int) (samples []soak.Sample) {
	t.Helper()
	t.writing.Lock()
	defer t.writing.Unlock()
	t.asking.Lock()
	defer t.asking.Unlock()
	t.resting.Lock()
	defer t.resting.Unlock()
	// A follower's watch may be forwarded, on a connection of its own.
	t.settled()
	t.stop()
	defer t.follow()
	for begun := time.Now(); time.Since(begun) < unusedFor; { // history and rights go sooner
		t.use()
		clock.Sleep(t.Context(), idleTimeout/3)
	}
	t.must(t.idlesOut(t.Context()))
	t.use()
	for range samplesOfARest {
		clock.Sleep(t.Context(), time.Second)
		sample, err := soak.Take(t.Context(), t.proxies.All()[0].AdminURL())
		t.must(err)
		sample.Rest, sample.Upstream = number, float64(t.hop.Connections())
		samples = append(samples, sample)
	}
	harness.Log(fmt.Sprintf("soak: rest %d: %.0f goroutines, %.1f MiB of heap", number, samples[0].Goroutines, samples[0].Heap/(1<<20)))
	return samples
}

// use asks for every collection that is asked for all the time: so each rest has the same ones, of
// which some would else have idled out in one rest and not yet in another.
func (t *turnover) use() {
	t.Helper()
	// The last is that of informers of metadata.
	for _, c := range append(collections(), collection{
		Kind: configMaps, Form: load.Form{Accept: ask.Protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
	}) {
		t.must(poll.Retry(t.Context(), "an answer from memory", func() error {
			return t.fromMemory(t.Context(), question{Collection: c, Query: ask.AnyVersion})
		}))
	}
}

// judge demands that all has come and gone, and says how often.
func (t *turnover) judge() {
	said := fmt.Sprintf("%d callers came and went, each with a token and a connection of its own; %d generations of objects went, with a label of their own; "+
		"a collection idled out %d times", t.callers.Load(), t.ended.Load(), t.idledAway.Load())
	harness.Log("soak: " + said)
	if t.callers.Load() == 0 || t.ended.Load() == 0 || t.idledAway.Load() == 0 {
		t.Errorf("%s: let it run longer", said)
	}
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
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
	// generationEvery is how often a namespace comes and another goes, of which there are
	// generations at a time.
	generationEvery = 10 * time.Second
	generations     = 3
	// ofGeneration is how many objects of each kind there are in it.
	ofGeneration = 3
	// idleTimeout is the --idle-timeout of a soak: longer than those wait who ask all the time.
	idleTimeout = requestTimeout + 5*time.Second
	// goneFor is how long nobody asks for a collection that was given up.
	goneFor = 5 * time.Second
	// unusedFor is how long listproxy keeps a connection to the API server that nobody uses.
	unusedFor = 90 * time.Second
	// restFor is how long a rest is, once all is gone that goes.
	restFor = 10 * time.Second
)

// idling returns the kinds of collections that come and go.
func idling() []kind {
	return []kind{quotas, {APIVersion: "v1", Name: "LimitRange", Plural: "limitranges"}}
}

// turnover is what comes and goes while a soak runs: callers, each with a token and a connection of
// its own; namespaces and values of labels; and collections, which idle out and come again.
// Whatever is kept by one of these, and never let go, grows. Safe for concurrent use.
type turnover struct {
	*scene

	mu   sync.Mutex
	live []string // namespaces, the newest last

	callers, begun, ended, returned atomic.Int64
}

// turnOver begins a turnover, until ctx ends, and returns what waits for that.
func (s *scene) turnOver(ctx context.Context) (*turnover, func()) {
	s.Helper()
	t := &turnover{scene: s}
	s.must(t.permit(ctx))
	var all sync.WaitGroup
	all.Go(func() { t.generate(ctx) })
	for range lanes {
		all.Go(func() { t.callAll(ctx) })
	}
	all.Go(func() { t.comeAndGo(ctx) })
	return t, all.Wait
}

// permit lets every service account list and watch what there is.
func (t *turnover) permit(ctx context.Context) error {
	everybody := controlplane.Grant{To: []string{"group:system:serviceaccounts"}}
	for _, k := range changing {
		everybody.Rules = append(everybody.Rules, controlplane.Rule("list,watch", k.Group(), k.Plural))
	}
	return t.plane.GrantAll(ctx, everybody)
}

// generate makes namespaces, with objects in them, and ends the oldest, until ctx ends. What fails
// is tried again later: the API server may be away.
func (t *turnover) generate(ctx context.Context) {
	for n := 0; ; n++ {
		name := "soak-generation-" + strconv.Itoa(n)
		t.writing.RLock()
		if t.begin(ctx, name) == nil {
			t.begun.Add(1)
		}
		// It may be there even if its answer was lost.
		t.mu.Lock()
		t.live = append(t.live, name)
		t.mu.Unlock()
		for oldest := t.oldest(); oldest != "" && t.end(ctx, oldest) == nil; oldest = t.oldest() {
			t.ended.Add(1)
			t.mu.Lock()
			t.live = slices.DeleteFunc(t.live, func(name string) bool { return name == oldest })
			t.mu.Unlock()
		}
		t.writing.RUnlock()
		if !poll.Pause(ctx, generationEvery) {
			return
		}
	}
}

// oldest returns a namespace that is to go, or "".
func (t *turnover) oldest() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) <= generations {
		return ""
	}
	return t.live[0]
}

// newest returns a namespace that is there, or "".
func (t *turnover) newest() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) == 0 {
		return ""
	}
	return t.live[len(t.live)-1]
}

// begin makes a namespace and what is in it.
func (t *turnover) begin(ctx context.Context, name string) error {
	if _, err := t.direct.Do(ctx, http.MethodPost, "/api/v1/namespaces", kinds.Namespace(name)); err != nil {
		return err
	}
	for _, k := range changing {
		for i := range ofGeneration {
			object := k.Object(load.NameOf(i))
			object["metadata"] = fieldsOf{"name": load.NameOf(i), "labels": fieldsOf{load.GenerationLabel: name}}
			// One that fails is missing, and that is all.
			_, _ = t.Write(ctx, t.direct, k, http.MethodPost, k.Path(name), object)
		}
	}
	return nil
}

// end removes a namespace. There is no controller that empties it, and finishes it then.
func (t *turnover) end(ctx context.Context, name string) error {
	path := "/api/v1/namespaces/" + name
	full := []string{path + "/serviceaccounts"}
	for _, k := range changing {
		full = append(full, k.Path(name))
	}
	for _, all := range full {
		if _, err := t.direct.Do(ctx, http.MethodDelete, all+"?gracePeriodSeconds=0", nil); err != nil {
			return err
		}
	}
	if a, err := t.direct.Do(ctx, http.MethodDelete, path, nil); err != nil {
		if a.Code == http.StatusNotFound {
			return nil // it went with an attempt whose answer was lost
		}
		return err
	}
	a, err := t.direct.Do(ctx, http.MethodPut, path+"/finalize", fieldsOf{
		"apiVersion": "v1", "kind": "Namespace", "metadata": fieldsOf{"name": name}, "spec": fieldsOf{"finalizers": []string{}},
	})
	if a.Code == http.StatusNotFound {
		return nil
	}
	return err
}

// callAll lets one caller after the other come, until ctx ends.
func (t *turnover) callAll(ctx context.Context) {
	for poll.Pause(ctx, callerEvery) {
		if name := t.newest(); name != "" && t.call(ctx, name) == nil {
			t.callers.Add(1)
		}
	}
}

// call is one caller's life: a token and a connection of its own, some questions, and a watch.
func (t *turnover) call(ctx context.Context, namespace string) error {
	t.writing.RLock()
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	token, err := t.plane.CreateServiceAccountToken(bounded, namespace, "caller")
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
		t.putAs(ctx, via, question{Collection: c, Namespace: namespace, Query: ask.AnyVersion}, true, 0)
		newest := t.Ledger.Newest(c.Kind)
		t.putAs(ctx, via, question{Collection: c, Generation: namespace, Query: ask.NotOlderThan(newest)}, true, newest)
	}
	// What it says is the followers' matter.
	_, err = via.Get(ctx, pods.Path(namespace)+"?timeoutSeconds=1&watch=true")
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

// comeAndGo asks for collections that nobody else asks for, leaves them until listproxy has given
// them up, and asks again, until ctx ends.
func (t *turnover) comeAndGo(ctx context.Context) {
	for ctx.Err() == nil {
		for _, k := range idling() {
			t.asking.RLock()
			q := question{Collection: collection{Kind: k, Form: load.AsJSON}, Generation: t.newest(), Query: ask.AnyVersion}
			if err := poll.Retry(ctx, "an answer from memory of what comes and goes", func() error {
				_, err := t.fromMemory(ctx, q)
				return err
			}); err != nil && ctx.Err() == nil {
				t.Tally.Wrong("%s: %v", q, err)
			}
			t.put(ctx, q, true, 0)
			t.asking.RUnlock()
		}
		err := poll.Try(ctx, patience, time.Second, "the end of collections that nobody asks for", func() error { return t.gone(ctx) })
		switch {
		case err == nil:
			t.returned.Add(1)
			poll.Pause(ctx, goneFor)
		case ctx.Err() == nil:
			t.Tally.Wrong("after %v: %v", idleTimeout, err)
		}
	}
}

// rest lets nobody write, watch or ask, but now and then for what is always asked for, and says so
// when all that comes and goes is gone: callers, what they were allowed, collections, history and
// connections. It stays so for some samples.
func (t *turnover) rest(at func(bool)) {
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
	defer t.keepUsed()()
	poll.Pause(t.Context(), unusedFor+time.Second) // history and rights go sooner
	t.must(poll.Retry(t.Context(), "the end of collections that nobody asks for", func() error { return t.gone(t.Context()) }))
	at(true)
	poll.Pause(t.Context(), restFor)
	at(false)
}

// keepUsed asks for every collection that is asked for all the time, and goes on until end is
// called: so each rest has the same collections, of which some would else have idled out in one
// rest and not yet in another.
func (t *turnover) keepUsed() (end func()) {
	t.Helper()
	// The last is that of informers of metadata.
	used := append(collections(), collection{
		Kind: configMaps, Form: load.Form{Accept: ask.Protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
	})
	use := func(c collection) error {
		a, err := t.via.GetAs(t.Context(), c.Form.Accept, question{Collection: c, Query: ask.AnyVersion}.Target())
		if err == nil && !a.FromMemory() {
			err = errors.New(a.String())
		}
		return err
	}
	for _, c := range used {
		t.must(poll.Retry(t.Context(), "an answer from memory", func() error { return use(c) }))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var using sync.WaitGroup
	using.Go(func() {
		for poll.Pause(ctx, idleTimeout/3) {
			for _, c := range used {
				_ = use(c) // the next one will do
			}
		}
	})
	return func() {
		cancel()
		using.Wait()
	}
}

// gone is an error as long as listproxy keeps a collection that comes and goes.
func (t *turnover) gone(ctx context.Context) error {
	sample, err := soak.Take(ctx, t.proxies.All()[0].AdminURL()+"/metrics")
	if err != nil {
		return err
	}
	for _, c := range sample.Collections {
		if slices.ContainsFunc(idling(), func(k kind) bool { return c.Resource == k.Plural }) {
			return fmt.Errorf("%s is there", c.Resource)
		}
	}
	return nil
}

// judge demands that all has come and gone, and says how often.
func (t *turnover) judge() string {
	for what, n := range map[string]int64{
		"caller came": t.callers.Load(), "namespace came": t.begun.Load(), "namespace went": t.ended.Load(), "collection idled out": t.returned.Load(),
	} {
		if n == 0 {
			t.Errorf("no %s: let it run longer", what)
		}
	}
	return fmt.Sprintf("%d callers came and went, each with a token and a connection of its own; %d namespaces came, with a label of their own, and %d went; collections idled out %d times",
		t.callers.Load(), t.begun.Load(), t.ended.Load(), t.returned.Load())
}

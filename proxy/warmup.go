package proxy

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
)

const (
	// warmupPause is the pause between two calls of Warmup.tryLoad for a collection.
	warmupPause = 2 * time.Second
	// maxWarmupWait is the longest time for which tryLoad waits until the collection is loaded.
	maxWarmupWait = 2 * time.Second
	// refusalGrace is the time for which a replica stays unready while kube-apiserver refuses an eager resource.
	refusalGrace = time.Minute
)

// Warmup loads the eager collections, which --eager names, and reports whether they are ready. A replica gets no requests
// before they are ready, since it would forward all of them.
//
// A collection is ready once it was loaded. A collection that kube-apiserver refuses to list is ready after a minute
// (refusalGrace), so that a wrong --eager does not keep every replica unready. A ready collection stays ready. If its state is
// lost later, its lists are forwarded, and Warmup loads it again without waiting for a request.
type Warmup struct {
	cluster     *cluster.Cluster
	collections *snapshot.Collections
	log         *slog.Logger

	mu     sync.Mutex
	states []eagerState
}

// EagerCollection is a collection that is loaded before the first request, and never dropped as idle.
type EagerCollection struct {
	schema.GroupVersionResource
	Representation media.Representation
}

// String returns the name of the collection as in --eager. The representation is left out if it is JSON.
func (e EagerCollection) String() string {
	name := strings.TrimSuffix(e.Resource+"."+e.Version+"."+e.Group, ".")
	if e.Representation != media.JSON {
		name += "/" + string(e.Representation)
	}
	return name
}

// EagerStats is the state of an eager collection at one moment.
type EagerStats struct {
	EagerCollection
	// WhyNotLoaded says why the collection is not loaded now: it is a reason.Reason or the text of an error. It is empty if the
	// collection is loaded.
	WhyNotLoaded string
	// Ready reports that the collection was loaded once, or that kube-apiserver has refused it for refusalGrace.
	Ready bool
}

// eagerState is what a Warmup remembers of an eager collection between two calls of tryLoad.
type eagerState struct {
	EagerStats
	// refusedSince is the time since which kube-apiserver has refused the collection; zero if it does not refuse it.
	refusedSince time.Time
	// refusalLogged reports that the warning about the current refusal was logged.
	refusalLogged bool
}

// refusalAdvice says for each refusal what an operator can do about it. Its keys are the values of WhyNotLoaded that are
// refusals of kube-apiserver to list a resource. All other values are failures that may pass.
var refusalAdvice = map[string]string{
	string(reason.UnknownResource): "correct its name or version in --eager, install its definition, or take it out",
	string(reason.NotPermitted):    "let listproxy's account list and watch it (docs/rbac.yaml), or take it out of --eager",
	string(reason.Representation):  "custom resources have no protobuf: leave that out in --eager",
}

// NewWarmup returns a Warmup of the eager collections, which must have no duplicates. Nothing is loaded before Run.
func NewWarmup(eager []EagerCollection, served *cluster.Cluster, collections *snapshot.Collections, log *slog.Logger) *Warmup {
	w := &Warmup{cluster: served, collections: collections, log: log}
	for _, e := range eager {
		stats := EagerStats{EagerCollection: e, WhyNotLoaded: string(reason.Warming)}
		w.states = append(w.states, eagerState{EagerStats: stats})
	}
	return w
}

// Run loads the eager collections, and loads each again when its state is lost, until ctx ends.
func (w *Warmup) Run(ctx context.Context) {
	var loops sync.WaitGroup
	for i := range w.states {
		s := &w.states[i]
		load := func(ctx context.Context) {
			whyNotLoaded := w.tryLoad(ctx, s.EagerCollection)
			w.record(s, whyNotLoaded, time.Now())
		}
		loops.Go(func() { wait.UntilWithContext(ctx, load, warmupPause) })
	}
	loops.Wait()
}

// tryLoad starts the collection unless it was started already, and waits up to maxWarmupWait until it is loaded. It returns the
// value for EagerStats.WhyNotLoaded.
func (w *Warmup) tryLoad(ctx context.Context, e EagerCollection) (whyNotLoaded string) {
	entry, why := w.cluster.Lookup(e.GroupVersionResource)
	if why != reason.None {
		return string(why)
	}
	if entry.Custom && e.Representation == media.Protobuf { // custom resources have no protobuf
		return string(reason.Representation)
	}
	collection, why := w.collections.Keep(snapshot.CollectionKey{
		GroupVersionResource: e.GroupVersionResource, Namespaced: entry.Namespaced, Representation: e.Representation,
	})
	if why != reason.None {
		return string(why)
	}
	why = collection.AwaitLoad(ctx, maxWarmupWait, snapshot.FirstLoad)
	if err := collection.LoadError(); why == reason.Warming && err != nil {
		return inOneLine(err.Error())
	}
	return string(why)
}

// record updates the state of a collection after tryLoad has returned whyNotLoaded at the time now.
func (w *Warmup) record(s *eagerState, whyNotLoaded string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, isRefusal := refusalAdvice[whyNotLoaded]
	switch {
	case !isRefusal:
		s.refusedSince = time.Time{}
		s.refusalLogged = false
	case s.refusedSince.IsZero():
		s.refusedSince = now
	}
	isGraceOver := isRefusal && now.Sub(s.refusedSince) >= refusalGrace
	w.logChangeLocked(s, whyNotLoaded, isGraceOver)
	s.WhyNotLoaded = whyNotLoaded
	s.Ready = s.Ready || isGraceOver || whyNotLoaded == ""
}

// logChangeLocked logs whyNotLoaded if it differs from the last one, which is still in s. Once the collection is ready, it logs
// no changes. When the grace of a refusal is over, it logs one warning, and sets s.refusalLogged.
func (w *Warmup) logChangeLocked(s *eagerState, whyNotLoaded string, isGraceOver bool) {
	switch {
	case isGraceOver && !s.refusalLogged:
		w.log.Warn("kube-apiserver refuses an eager resource: its lists are forwarded, and replicas get ready without it",
			"resource", s.String(), "reason", whyNotLoaded, "do", refusalAdvice[whyNotLoaded])
		s.refusalLogged = true
	case whyNotLoaded != "" && whyNotLoaded != s.WhyNotLoaded && !s.Ready:
		w.log.Info("an eager collection is not loaded yet", "resource", s.String(), "reason", whyNotLoaded)
	}
}

// Stats returns the state of each eager collection, in the order of NewWarmup's argument.
func (w *Warmup) Stats() []EagerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]EagerStats, len(w.states))
	for i, s := range w.states {
		all[i] = s.EagerStats
	}
	return all
}

// maxErrorLength is the length in bytes to which inOneLine shortens a text.
const maxErrorLength = 500

// inOneLine returns a text without line breaks, shortened to maxErrorLength.
func inOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxErrorLength {
		text = strings.ToValidUTF8(text[:maxErrorLength], "") + " …" // the cut may split the last character
	}
	return text
}

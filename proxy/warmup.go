package proxy

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// EagerCollection is a collection that is loaded before the first request, and never dropped as idle.
type EagerCollection struct {
	schema.GroupVersionResource
	Representation media.Representation
}

const (
	// warmupPause is the pause between two attempts to start or check a collection.
	warmupPause = 2 * time.Second
	// maxWarmupWait is the longest time for which an attempt waits until the collection is loaded.
	maxWarmupWait = 2 * time.Second
	// maxRefusal is the time for which a replica waits for an eager resource that kube-apiserver refuses. After that time the
	// replica gets ready without the resource.
	maxRefusal = time.Minute
)

// Warmup loads the eager collections before the first request, and reports whether they are loaded. A replica that got
// traffic earlier would send all of it upstream. For a resource that kube-apiserver refuses, Warmup waits only for
// maxRefusal, since otherwise no replica would ever be ready. A collection that was ready once stays ready. If it is lost
// later, its lists are forwarded, and Warmup starts it again as soon as possible, without waiting for a request.
type Warmup struct {
	cluster     *cluster.Cluster
	collections *snapshot.Collections
	log         *slog.Logger

	mu     sync.Mutex
	states []eagerState
}

// EagerStats is the state of an eager collection at one moment.
type EagerStats struct {
	EagerCollection
	// WhyNotLoaded is the reason why the collection is not loaded now: a reason.Reason, or an error. It is empty if the
	// collection is loaded.
	WhyNotLoaded string
	// Ready reports whether the collection was loaded once, or kube-apiserver has refused it for maxRefusal. The replica is
	// ready if all collections are.
	Ready bool
}

// eagerState is what a Warmup remembers of an eager collection between two attempts to start it.
type eagerState struct {
	EagerStats
	// refusedSince is the time of the first of the current refusals; zero if there is none.
	refusedSince time.Time
	// refusalLogged reports whether the current refusals were logged.
	refusalLogged bool
}

// refusalAdvice says what to do about each reason why kube-apiserver refuses to list a resource.
var refusalAdvice = map[string]string{
	string(reason.UnknownResource): "correct its name or version in --eager, install its definition, or take it out",
	string(reason.NotPermitted):    "let listproxy's account list and watch it (docs/rbac.yaml), or take it out of --eager",
	string(reason.Representation):  "custom resources have no protobuf: leave that out in --eager",
}

// NewWarmup returns a Warmup of the eager collections. No two of them may be the same. Call Run to start them.
func NewWarmup(
	eager []EagerCollection, served *cluster.Cluster, collections *snapshot.Collections, log *slog.Logger,
) *Warmup {
	w := &Warmup{cluster: served, collections: collections, log: log}
	for _, e := range eager {
		w.states = append(w.states, eagerState{
			EagerStats: EagerStats{EagerCollection: e, WhyNotLoaded: string(reason.Warming)},
		})
	}
	return w
}

// Run keeps the eager collections running until ctx ends.
func (w *Warmup) Run(ctx context.Context) {
	var loops sync.WaitGroup
	for i := range w.states {
		loops.Go(func() { w.keepRunning(ctx, &w.states[i]) })
	}
	loops.Wait()
}

// keepRunning keeps one collection running until ctx ends.
func (w *Warmup) keepRunning(ctx context.Context, s *eagerState) {
	for {
		w.record(s, w.start(ctx, s.EagerCollection), time.Now())
		if !clock.Sleep(ctx, warmupPause) {
			return
		}
	}
}

// start starts the collection unless it runs already, and waits for up to maxWarmupWait until it is loaded. It returns the
// reason why the collection is not loaded, or "".
func (w *Warmup) start(ctx context.Context, e EagerCollection) (whyNot string) {
	entry, why := w.cluster.Lookup(e.GroupVersionResource)
	if why != reason.None {
		return string(why)
	}
	if entry.Custom && e.Representation == media.Protobuf { // custom resources do not have it
		return string(reason.Representation)
	}
	collection, why := w.collections.Keep(snapshot.CollectionKey{
		GroupVersionResource: e.GroupVersionResource, Namespaced: entry.Namespaced, Representation: e.Representation,
	})
	if why != reason.None {
		return string(why)
	}
	why = collection.AwaitLoad(ctx, maxWarmupWait, snapshot.FirstLoad)
	if why == reason.Warming {
		if err := collection.LoadError(); err != nil {
			return inOneLine(err.Error())
		}
	}
	return string(why)
}

// maxError is the largest length in bytes of a text that inOneLine returns, before " …".
const maxError = 500

// inOneLine returns a text without line breaks, shortened to maxError bytes.
func inOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + " …"
	}
	return text
}

// record records the result of start for a collection, and logs it if it is news.
func (w *Warmup) record(s *eagerState, whyNot string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	advice, refused := refusalAdvice[whyNot]
	switch {
	case !refused:
		s.refusedSince = time.Time{}
		s.refusalLogged = false
	case s.refusedSince.IsZero():
		s.refusedSince = now
	}
	givesUp := refused && now.Sub(s.refusedSince) >= maxRefusal
	switch {
	case givesUp && !s.refusalLogged:
		w.log.Warn("kube-apiserver refuses an eager resource: its lists are forwarded, and replicas get ready without it",
			"resource", s.String(), "reason", whyNot, "do", advice)
		s.refusalLogged = true
	case whyNot != "" && whyNot != s.WhyNotLoaded && !s.Ready:
		w.log.Info("an eager collection is not loaded yet", "resource", s.String(), "reason", whyNot)
	}
	s.WhyNotLoaded = whyNot
	s.Ready = s.Ready || givesUp || whyNot == ""
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

// String returns the name of the collection as --eager has it. The name has the representation only if that is not JSON.
func (e EagerCollection) String() string {
	name := strings.TrimSuffix(e.Resource+"."+e.Version+"."+e.Group, ".")
	if e.Representation != media.JSON {
		name += "/" + string(e.Representation)
	}
	return name
}

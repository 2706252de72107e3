package proxy

import (
	"context"
	"log/slog"
	"slices"
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

// EagerCollection is a collection that is loaded before the first request, and kept.
type EagerCollection struct {
	schema.GroupVersionResource
	Representation media.Representation
}

const (
	// warmupRetry is the pause between two attempts to start or check a collection.
	warmupRetry = 2 * time.Second
	// refusedFor is the time for which kube-apiserver must refuse an eager resource before a replica gets ready
	// without it.
	refusedFor = time.Minute
)

// Warmup loads the eager collections before the first request, and reports whether they are loaded: a replica that got
// traffic earlier would send all of it upstream at once. It does not wait for a resource that kube-apiserver itself
// refuses, since no replica would ever be ready. Once it is ready, it stays so: if a collection is lost later, its lists
// are forwarded, and Warmup starts it again as soon as possible, without waiting for a request.
type Warmup struct {
	cluster     *cluster.Cluster
	collections *snapshot.Collections
	log         *slog.Logger

	mu    sync.Mutex
	stats []EagerStats
}

// EagerStats says whether an eager collection is loaded.
type EagerStats struct {
	EagerCollection
	// Waits is the reason why it is not loaded now; empty if it is.
	Waits string
	// Ready reports whether it was loaded once, or kube-apiserver has refused it for a minute. The replica is ready if
	// all are.
	Ready bool

	// refusedSince is the time of the first refusal in a row; zero if it is not refused.
	refusedSince time.Time
	// logged reports whether the refusal was logged.
	logged bool
}

// refusals has advice about a resource that kube-apiserver refuses to list, by the reason.
var refusals = map[string]string{
	string(reason.UnknownResource): "correct its name or version in --eager, install its definition, or take it out",
	string(reason.NotPermitted):    "let listproxy's account list and watch it (docs/rbac.yaml), or take it out of --eager",
	string(reason.Representation):  "custom resources have no protobuf: leave that out in --eager",
}

// NewWarmup returns a Warmup of the eager collections. eager must name each of them once. Call Run
// to start it.
func NewWarmup(
	eager []EagerCollection, served *cluster.Cluster, collections *snapshot.Collections, log *slog.Logger,
) *Warmup {
	w := &Warmup{cluster: served, collections: collections, log: log}
	for _, e := range eager {
		w.stats = append(w.stats, EagerStats{EagerCollection: e, Waits: string(reason.Warming)})
	}
	return w
}

// Run starts the eager collections, and starts them again when they were dropped, until ctx ends.
func (w *Warmup) Run(ctx context.Context) {
	var started sync.WaitGroup
	for i := range w.stats {
		started.Go(func() {
			for {
				w.record(&w.stats[i], w.start(ctx, w.stats[i].EagerCollection), time.Now())
				if !clock.Sleep(ctx, warmupRetry) {
					return
				}
			}
		})
	}
	started.Wait()
}

// start makes sure that the collection runs, and waits for its first state. It returns the reason if there is none.
func (w *Warmup) start(ctx context.Context, e EagerCollection) string {
	entry, why := w.cluster.Lookup(e.GroupVersionResource)
	if why == reason.None && entry.Custom && e.Representation == media.Protobuf {
		why = reason.Representation // custom resources do not have it
	}
	if why != reason.None {
		return string(why)
	}
	collection, unavailable := w.collections.Keep(snapshot.CollectionKey{
		GroupVersionResource: e.GroupVersionResource, Namespaced: entry.Namespaced, Representation: e.Representation,
	})
	if unavailable == reason.None {
		unavailable = collection.AwaitLoad(ctx, warmupRetry, false)
	}
	if unavailable == reason.Warming && collection != nil {
		if err := collection.LoadError(); err != nil {
			return inOneLine(err.Error())
		}
	}
	return string(unavailable)
}

// maxError is the length in bytes at which an error of the upstream is cut.
const maxError = 500

// inOneLine returns a text without line breaks, cut after maxError bytes.
func inOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + " …"
	}
	return text
}

// record records the reason why a collection is not loaded; why is empty if it is.
func (w *Warmup) record(s *EagerStats, why string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	advice, refused := refusals[why]
	switch {
	case !refused:
		s.refusedSince, s.logged = time.Time{}, false
	case s.refusedSince.IsZero():
		s.refusedSince = now
	}
	lasts := refused && now.Sub(s.refusedSince) >= refusedFor
	switch {
	case lasts && !s.logged:
		w.log.Warn("kube-apiserver refuses an eager resource: its lists are forwarded, and replicas get ready without it",
			"resource", s.String(), "reason", why, "do", advice)
		s.logged = true
	case why != "" && why != s.Waits && !s.Ready:
		w.log.Info("an eager collection is not loaded yet", "resource", s.String(), "reason", why)
	}
	s.Waits, s.Ready = why, s.Ready || lasts || why == ""
}

// Stats returns the state of each eager collection, in their order.
func (w *Warmup) Stats() []EagerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stats)
}

// String returns the name of the collection as --eager takes it, with the version, and with the representation unless
// that is JSON.
func (e EagerCollection) String() string {
	name := strings.TrimSuffix(e.Resource+"."+e.Version+"."+e.Group, ".")
	if e.Representation != media.JSON {
		name += "/" + string(e.Representation)
	}
	return name
}

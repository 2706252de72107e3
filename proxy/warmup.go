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

// EagerCollection is one that is loaded before anybody asks, and kept.
type EagerCollection struct {
	schema.GroupVersionResource
	Representation media.Representation
}

const (
	// warmupRetry is the pause between two attempts to start or check a collection.
	warmupRetry = 2 * time.Second
	// refusedFor is the time for which kube-apiserver must refuse an eager resource before a replica gets ready without it.
	refusedFor = time.Minute
)

// Warmup loads the eager collections before the first request, and says when they are loaded: a
// replica that got traffic earlier would send all of it upstream at once. It does not wait for what kube-apiserver
// itself refuses: that there is no such resource, or that listproxy may not read it, is so for all replicas, and
// somebody has to be served. Once it is ready, it stays so: if a collection is lost later, its lists are forwarded,
// and Warmup starts it again as soon as possible, without waiting for a request.
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
	// Ready reports whether it was loaded once, or kube-apiserver has refused it for a minute. So it keeps no replica from being ready.
	Ready bool

	// refusedSince is the time of the first refusal in a row; zero if it is not refused. told reports whether the log says so.
	refusedSince time.Time
	told         bool
}

// refusals say what to do about a resource that kube-apiserver refuses to list.
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
				w.note(&w.stats[i], w.start(ctx, w.stats[i].EagerCollection), time.Now())
				if !clock.Sleep(ctx, warmupRetry) {
					return
				}
			}
		})
	}
	started.Wait()
}

// start makes sure that the collection runs, and waits for its first state. If there is none, it
// returns why.
func (w *Warmup) start(ctx context.Context, e EagerCollection) string {
	entry, why := w.cluster.Lookup(e.GroupVersionResource)
	if why == "" && entry.Custom && e.Representation == media.Protobuf {
		why = reason.Representation // custom resources do not have it
	}
	if why != "" {
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

// longestTrouble bounds, in bytes, what is said of an error of the upstream.
const longestTrouble = 500

// inOneLine is a text without line breaks, and not too long.
func inOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longestTrouble {
		text = strings.ToValidUTF8(text[:longestTrouble], "") + " …"
	}
	return text
}

// note notes why a collection is not loaded, if it is not.
func (w *Warmup) note(s *EagerStats, why string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	advice, refused := refusals[why]
	switch {
	case !refused:
		s.refusedSince, s.told = time.Time{}, false
	case s.refusedSince.IsZero():
		s.refusedSince = now
	}
	lasts := refused && now.Sub(s.refusedSince) >= refusedFor
	switch {
	case lasts && !s.told:
		w.log.Warn("kube-apiserver refuses an eager resource: its lists are forwarded, and replicas get ready without it",
			"resource", s.String(), "reason", why, "do", advice)
		s.told = true
	case why != "" && why != s.Waits && !s.Ready:
		w.log.Info("an eager collection is not loaded yet", "resource", s.String(), "reason", why)
	}
	s.Waits, s.Ready = why, s.Ready || lasts || why == ""
}

// Stats returns one for each eager collection, in their order.
func (w *Warmup) Stats() []EagerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stats)
}

// String names a collection as --eager does, always with the version: the representation follows, unless it is JSON.
func (e EagerCollection) String() string {
	name := strings.TrimSuffix(e.Resource+"."+e.Version+"."+e.Group, ".")
	if e.Representation != media.JSON {
		name += "/" + string(e.Representation)
	}
	return name
}

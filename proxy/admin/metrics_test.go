package admin

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
	"github.com/listproxy/listproxy/test/reference"
)

// gatherAll returns all metrics of listproxy. A counter has no series before its first event, so gatherAll makes one event of
// each kind.
func gatherAll(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	o, metrics := observetest.New(nil)
	// A list that is answered from memory, and one that is forwarded.
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	for _, why := range []reason.Reason{reason.None, reason.Watch} {
		observetest.Request(o, r, func(s observetest.Seen) {
			s.SetDecision(&policy.Request{Version: "v1", Resource: "pods"}, "", why)
		})
	}
	// A wait for the proof that memory has the newest state.
	_, endProof := o.StartProof(t.Context())
	endProof(reason.NotProven)
	// A review of a caller's right.
	upstream := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		return inmemory.Answer(r, http.StatusOK, "{}\n"), nil
	})
	sendReview := o.InstrumentSend(observe.PurposeReview,
		func(_ context.Context, _ auth.Identity, r *http.Request) (*http.Response, error) { return upstream(r) })
	review, err := sendReview(t.Context(), auth.Identity{}, httptest.NewRequest(http.MethodPost, "/", nil))
	expect.NoError(t, err)
	_ = review.Body.Close()
	// A request of a feed, which keeps a collection current.
	ctx := source.WithCollection(source.WithPurpose(t.Context(), source.ForWatch), keyOf("", "pods", media.JSON))
	feed, err := o.FeedTransport(upstream, source.Describe).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	expect.NoError(t, err)
	_ = proxytest.ReadAll(t, feed.Body)
	_ = feed.Body.Close()
	// The metrics that a Source reads at each scrape.
	metrics.MustRegister(newFullSource(t))
	return proxytest.Gather(t, metrics)
}

// newFullSource returns a Source whose metrics all have at least one series.
func newFullSource(t *testing.T) *Source {
	t.Helper()
	s, _, collections := newObservedSource(t)
	pods := staleStats("pods")
	pods.Watches.Ended = map[watch.Ending]uint64{watch.EndTimeout: 1}
	pods.Losses = map[reason.Reason]uint64{reason.Expired: 1}
	nodes := liveStats(keyOf("", "nodes", media.JSON), 0)
	collections.stats = []snapshot.CollectionStats{pods, nodes}
	s.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{readyEager("pods", loaded), readyEager("gone", "unknown-resource")}
	}
	s.Compression = func() gzip.CompressorStats { return gzip.CompressorStats{Found: 1} }
	s.ReviewLookups = func() (hits, misses uint64) { return 1, 0 }
	s.Inflight = limits.New(limits.Config{}).Stats
	s.Connections = map[string]*limits.Connections{"clients": limits.NewConnections(1)}
	var unknown time.Time // of a certificate that cannot be read
	s.Certificates = func() map[string]time.Time { return map[string]time.Time{"serving": time.Now(), "client-ca": unknown} }
	return s
}

// TestReference: docs/reference.md has a row for every metric, with its type, labels and help.
func TestReference(t *testing.T) {
	families := gatherAll(t)
	table := reference.Head("metric", "type", "labels", "")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		labels := map[string]bool{}
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		kind := strings.ToLower(families[name].GetType().String())
		labelNames := strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
		table += reference.Row("`"+name+"`", kind, labelNames, families[name].GetHelp())
	}
	reference.Check(t, "../../docs/reference.md", "metrics", table)
}

// TestSeries: listproxy_collection_live has a series for each collection, and for each eager resource (loaded at the start)
// that has no collection yet. A certificate that cannot be read has no series.
func TestSeries(t *testing.T) {
	families := gatherAll(t)
	expect.Same(t, []string{
		"reason=none,representation=json,resource=nodes,version=v1 1",
		"reason=stale,representation=json,resource=pods,version=v1 0",
		"reason=unknown-resource,representation=json,resource=gone,version=v1 0", // eager, without a collection
	}, proxytest.Series(families["listproxy_collection_live"]))
	got := proxytest.Series(families["listproxy_certificate_not_after_timestamp_seconds"])
	if len(got) != 1 || !strings.HasPrefix(got[0], "certificate=serving ") {
		t.Errorf("the certificates' series are %v, want only one, of the serving certificate", got)
	}
}

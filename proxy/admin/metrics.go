package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/gzip"
)

// State is a [prometheus.Collector] of metrics that are read at each scrape, and cost nothing in between.
type State struct {
	Collections func() []snapshot.CollectionStats
	// Eager returns the collections to load before the first request. Some may not exist yet.
	Eager func() []proxy.EagerStats
	// Staleness is the age from which on a newest state is no longer given.
	Staleness time.Duration
	// Stored returns the number of bytes that all collections store, and its bound, 0 if there is none.
	Stored      func() (bytes, bound int64)
	Compression func() gzip.CompressorStats
	// SelfChecks returns the number of comparisons with the upstream by their result.
	SelfChecks func() map[snapshot.CheckResult]uint64
	Reviews    func() auth.Stats
	Inflight   func() map[string]limits.Stats
	// Connections has the connections of each port, by its name.
	Connections map[string]*limits.Connections
	// Certificates returns the times at which the certificates in use end.
	Certificates func() []serve.Expiry
	// Health returns the state of the API server.
	Health func() upstream.HealthStats
}

// metric describes one metric.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// collectionLabels has the names of the labels that identify a collection.
var collectionLabels = []string{observe.LabelResource, observe.LabelVersion, observe.LabelRepresentation}

// perCollection returns the labels of a metric that each collection has: the collectionLabels and more.
func perCollection(more ...string) []string { return append(collectionLabels[:3:3], more...) }

var (
	collectionLive = gauge("listproxy_collection_live",
		"1 if lists of the newest state can be answered, else 0 and why (reason).", perCollection(observe.LabelReason)...)
	collectionObjects = gauge("listproxy_collection_objects", "Objects in the newest state.", perCollection()...)
	collectionSize    = gauge("listproxy_collection_size_bytes",
		"Bytes stored: objects, their history, and an estimate of the structures around them.", perCollection()...)
	collectionHistory = gauge("listproxy_collection_history_seconds", "How far back a revision can be asked for.", perCollection()...)
	feedLag           = gauge("listproxy_feed_lag_seconds", "How old the newest state is at most: the time since the API server was "+
		"asked for the revision that the state has reached. It grows between two probes, and on a quiet resource between two bookmarks.",
		perCollection()...)
	feedRestarts = counter("listproxy_feed_restarts_total",
		"How often a state was lost, or had to be loaded anew, and why (cause). History begins anew each time.", perCollection("cause")...)

	watches     = gauge("listproxy_watches", "Watches that are answered from memory now, streaming lists among them.", perCollection()...)
	watchEvents = counter("listproxy_watch_events_total",
		"Events of watches from memory, bookmarks included and initial events not, each counted for every client that got it.",
		perCollection()...)
	watchEnds = counter("listproxy_watch_ends_total", "Watches from memory that have ended, and why (reason).",
		perCollection(observe.LabelReason)...)

	stored = gauge("listproxy_stored_bytes",
		"Bytes that all collections store together, including what is reserved for those that load.")
	storedLimit        = gauge("listproxy_stored_limit_bytes", "The bound on listproxy_stored_bytes (--cache-bytes); 0 is no bound.")
	compressionSize    = gauge("listproxy_compression_size_bytes", "Bytes kept of compressed segments.")
	compressionLookups = counter("listproxy_compression_lookups_total",
		"Segments of lists that were compressed already (hit), or had to be compressed (miss).", "result")
	reviewLookups = counter("listproxy_review_lookups_total",
		"Callers' rights that were remembered (hit), or had to be reviewed by the API server (miss).", "result")
	selfChecks = counter("listproxy_selfchecks_total", "Comparisons of memory with the API server: both agree, or they differ and memory "+
		"was dropped (mismatch), or there was no verdict (inconclusive).", "result")

	inflightRequests = gauge("listproxy_inflight_requests",
		"Requests in flight: short ones, and those that run for long (watches, logs, execs and the like).", "kind")
	inflightBytes    = gauge("listproxy_inflight_bytes", "Bytes of large lists from memory that are being written, before compression.")
	inflightWaiting  = gauge("listproxy_inflight_waiting", "Requests that wait for their turn, or for memory.", "kind")
	inflightRefusals = counter("listproxy_inflight_refusals_total",
		"Requests for which there was no room, by the bound that was reached (kind) and why.", "kind", observe.LabelReason)
	connections      = gauge("listproxy_connections", "Open connections: of clients, tunnels included, and of the admin port.", "port")
	connectionsLimit = gauge("listproxy_connections_limit",
		"The bound on listproxy_connections (one for each MiB of GOMEMLIMIT, from 256 to 20000); 0 is no bound.", "port")

	certificateEnd = gauge("listproxy_certificate_not_after_timestamp_seconds",
		"When a certificate in use ends, in Unix time; for a chain or a file with several CAs, the first to end.", "certificate")
	upstreamOK = gauge("listproxy_upstream_ok",
		"1 if the API server answers listproxy's own account as it should, else 0 and what is wrong (state).", "state")
)

// Describe implements [prometheus.Collector]. It gives no descriptions, so the registry checks metrics at each scrape.
func (s State) Describe(chan<- *prometheus.Desc) {}

// scrape takes the metrics of one scrape.
type scrape chan<- prometheus.Metric

// put adds a metric with a value and the values of its labels to a scrape.
func put[N int | int64 | uint64 | float64](to scrape, m metric, value N, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(value), labels...)
}

// Collect implements [prometheus.Collector].
func (s State) Collect(metrics chan<- prometheus.Metric) {
	to := scrape(metrics)
	now := time.Now()
	exists := map[proxy.EagerCollection]bool{}
	for _, c := range s.Collections() {
		s.collectCollection(to, c, now)
		exists[proxy.EagerCollection{GroupVersionResource: c.Resource.GroupVersionResource, Representation: c.Resource.Representation}] = true
	}
	for _, e := range s.Eager() {
		if !exists[e.EagerCollection] {
			put(to, collectionLive, 0, e.GroupResource().String(), e.Version, string(e.Representation), observe.OrNone(e.Waits))
		}
	}
	bytes, bound := s.Stored()
	put(to, stored, bytes)
	put(to, storedLimit, bound)
	compression := s.Compression()
	put(to, compressionSize, compression.Kept)
	put(to, compressionLookups, compression.Found, "hit")
	put(to, compressionLookups, compression.Made, "miss")
	reviews := s.Reviews()
	put(to, reviewLookups, reviews.Hits, "hit")
	put(to, reviewLookups, reviews.Misses, "miss")
	for result, n := range s.SelfChecks() {
		put(to, selfChecks, n, string(result))
	}
	s.collectLoad(to)
	for _, c := range s.Certificates() {
		if !c.NotAfter.IsZero() {
			put(to, certificateEnd, c.NotAfter.Unix(), c.Name)
		}
	}
	health := s.Health()
	put(to, upstreamOK, one(health.Condition == upstream.ConditionOK), string(health.Condition))
}

// collectCollection puts the metrics of one collection.
func (s State) collectCollection(to scrape, c snapshot.CollectionStats, now time.Time) {
	labels := []string{c.Resource.GroupResource().String(), c.Resource.Version, string(c.Resource.Representation)}
	labelsWith := func(label string) []string { return append(labels[:3:3], label) }
	unavailable := reasonUnavailable(c, now, s.Staleness)
	put(to, collectionLive, one(unavailable == reason.None), labelsWith(observe.OrNone(string(unavailable)))...)
	put(to, collectionObjects, c.Objects, labels...)
	put(to, collectionSize, c.Bytes, labels...)
	for cause, n := range c.Feed.Losses {
		put(to, feedRestarts, n, labelsWith(string(cause))...)
	}
	if !c.Oldest.IsZero() {
		put(to, collectionHistory, now.Sub(c.Oldest).Seconds(), labels...)
	}
	if !c.CurrentAt.IsZero() {
		put(to, feedLag, clock.Age(c.CurrentAt, now).Seconds(), labels...)
	}
	put(to, watches, c.Watches.Open, labels...)
	put(to, watchEvents, c.Watches.Delivered, labels...)
	for why, n := range c.Watches.Ended {
		put(to, watchEnds, n, labelsWith(string(why))...)
	}
}

// collectLoad puts the metrics of requests in flight, and of open connections.
func (s State) collectLoad(to scrape) {
	for kind, l := range s.Inflight() {
		if kind == "bytes" {
			put(to, inflightBytes, l.InUse)
		} else {
			put(to, inflightRequests, l.InUse, kind)
		}
		put(to, inflightWaiting, l.Waiting, kind)
		for _, why := range limits.Overloads() {
			put(to, inflightRefusals, l.Refused[why], kind, string(why))
		}
	}
	for port, c := range s.Connections {
		put(to, connections, c.Open(), port)
		put(to, connectionsLimit, c.Most(), port)
	}
}

// one returns 1 for true, and 0 for false.
func one(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

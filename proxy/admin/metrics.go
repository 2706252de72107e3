package admin

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// metric describes a metric that is read at each scrape.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// gauge describes a gauge.
func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// counter describes a counter.
func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// collectionLabels has the names of the labels that identify a collection.
var collectionLabels = []string{observe.LabelResource, observe.LabelVersion, observe.LabelRepresentation}

// collectionGauge describes a gauge that each collection has, with the collectionLabels and more labels.
func collectionGauge(name, help string, more ...string) metric {
	return gauge(name, help, slices.Concat(collectionLabels, more)...)
}

// collectionCounter describes a counter that each collection has, with the collectionLabels and more labels.
func collectionCounter(name, help string, more ...string) metric {
	return counter(name, help, slices.Concat(collectionLabels, more)...)
}

var (
	collectionLive = collectionGauge("listproxy_collection_live",
		"1 if lists of the newest state can be answered, else 0 and why (reason).", observe.LabelReason)
	collectionObjects = collectionGauge("listproxy_collection_objects", "Objects in the newest state.")
	collectionSize    = collectionGauge("listproxy_collection_size_bytes",
		"Bytes stored: objects, their history, and an estimate of the structures around them.")
	collectionHistory = collectionGauge("listproxy_collection_history_seconds", "How far back a revision can be asked for.")
	feedLag           = collectionGauge("listproxy_feed_lag_seconds",
		"How old the newest state is at most: the time since the API server was asked for the revision that the state has reached. "+
			"It grows between two probes, and on a quiet resource between two bookmarks.")
	feedRestarts = collectionCounter("listproxy_feed_restarts_total",
		"How often a state was lost, or had to be loaded anew, and why (cause). History begins anew each time.", "cause")

	watches     = collectionGauge("listproxy_watches", "Watches that are answered from memory now, streaming lists among them.")
	watchEvents = collectionCounter("listproxy_watch_events_total",
		"Events of watches from memory, bookmarks included and initial events not, each counted for every client that got it.")
	watchEnds = collectionCounter("listproxy_watch_ends_total", "Watches from memory that have ended, and why (reason).",
		observe.LabelReason)

	stored = gauge("listproxy_stored_bytes",
		"Bytes that all collections store together, including the states that are being loaded.")
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
		"The bound on listproxy_connections (one for each MiB of GOMEMLIMIT, from 256 to 20000).", "port")

	certificateEnd = gauge("listproxy_certificate_not_after_timestamp_seconds",
		"When a certificate in use ends, in Unix time; for a chain or a file with several CAs, the first to end.", "certificate")
	upstreamOK = gauge("listproxy_upstream_ok",
		"1 if the API server answers listproxy's own account as it should, else 0 and what is wrong (state).", "state")
)

// Describe implements [prometheus.Collector]. It sends no descriptions, so the registry checks metrics at each scrape.
func (s *Source) Describe(chan<- *prometheus.Desc) {}

// send sends a metric with a value and the values of its labels.
func send[N int | int64 | uint64 | float64](ch chan<- prometheus.Metric, m metric, value N, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(value), labels...)
}

// Collect implements [prometheus.Collector].
func (s *Source) Collect(ch chan<- prometheus.Metric) {
	s.sendCollections(ch)
	bytes, bound := s.Collections.Stored()
	send(ch, stored, bytes)
	send(ch, storedLimit, bound)
	for result, n := range s.Collections.SelfChecks() {
		send(ch, selfChecks, n, string(result))
	}

	compression := s.Compression()
	send(ch, compressionSize, compression.Kept)
	send(ch, compressionLookups, compression.Found, "hit")
	send(ch, compressionLookups, compression.Made, "miss")
	reviews := s.Reviews()
	send(ch, reviewLookups, reviews.Hits, "hit")
	send(ch, reviewLookups, reviews.Misses, "miss")

	s.sendLoad(ch)
	for _, certificate := range s.Certificates() {
		if !certificate.NotAfter.IsZero() { // zero if the certificate cannot be read
			send(ch, certificateEnd, certificate.NotAfter.Unix(), certificate.Name)
		}
	}
	health := s.Health()
	send(ch, upstreamOK, oneIf(health.Condition == upstream.ConditionOK), string(health.Condition))
}

// sendCollections sends the metrics of all collections. For an eager collection that does not exist yet it sends
// [collectionLive] with the value 0, so that an alert can find it.
func (s *Source) sendCollections(ch chan<- prometheus.Metric) {
	now := time.Now()
	exists := map[proxy.EagerCollection]bool{}
	for _, c := range s.Collections.Stats() {
		sendCollection(ch, c, now)
		key := proxy.EagerCollection{GroupVersionResource: c.Key.GroupVersionResource, Representation: c.Key.Representation}
		exists[key] = true
	}
	for _, e := range s.Eager() {
		if !exists[e.EagerCollection] {
			send(ch, collectionLive, 0, e.GroupResource().String(), e.Version, string(e.Representation), observe.OrNone(e.WhyNotLoaded))
		}
	}
}

// sendCollection sends the metrics of one collection.
func sendCollection(ch chan<- prometheus.Metric, c snapshot.CollectionStats, now time.Time) {
	labels := []string{c.Key.GroupResource().String(), c.Key.Version, string(c.Key.Representation)}
	labelsWith := func(label string) []string { return slices.Concat(labels, []string{label}) }
	send(ch, collectionLive, oneIf(c.Unavailable == reason.None), labelsWith(observe.OrNone(string(c.Unavailable)))...)
	send(ch, collectionObjects, c.Objects, labels...)
	send(ch, collectionSize, c.Bytes, labels...)
	for cause, n := range c.Losses {
		send(ch, feedRestarts, n, labelsWith(string(cause))...)
	}
	if !c.Oldest.IsZero() {
		send(ch, collectionHistory, now.Sub(c.Oldest).Seconds(), labels...)
	}
	if !c.CurrentAt.IsZero() {
		send(ch, feedLag, clock.Age(c.CurrentAt, now).Seconds(), labels...)
	}
	send(ch, watches, c.Watches.Open, labels...)
	send(ch, watchEvents, c.Watches.Delivered, labels...)
	for ending, n := range c.Watches.Ended {
		send(ch, watchEnds, n, labelsWith(string(ending))...)
	}
}

// bytesLimiter is the name of the limiter that counts bytes. The others count requests.
const bytesLimiter = "bytes"

// sendLoad sends the metrics of requests in flight, and of open connections.
func (s *Source) sendLoad(ch chan<- prometheus.Metric) {
	for kind, stats := range s.Inflight() {
		if kind == bytesLimiter {
			send(ch, inflightBytes, stats.InUse)
		} else {
			send(ch, inflightRequests, stats.InUse, kind)
		}
		send(ch, inflightWaiting, stats.Waiting, kind)
		for _, overload := range limits.Overloads() {
			send(ch, inflightRefusals, stats.Refused[overload], kind, string(overload))
		}
	}
	for port, open := range s.Connections {
		send(ch, connections, open.Open(), port)
		send(ch, connectionsLimit, open.Limit(), port)
	}
}

// oneIf returns 1 if condition is true, otherwise 0.
func oneIf(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// metric describes a metric that is read at each scrape.
type metric struct {
	desc      *prometheus.Desc
	valueType prometheus.ValueType
}

func newGauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func newCounter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Names of labels that only the metrics of this file have.
const (
	labelKind   = "kind" // names the limiter
	labelResult = "result"
	labelPort   = "port"
)

// collectionLabels returns the names of the labels of a collection (one resource in one representation), then more names.
func collectionLabels(more ...string) []string {
	return append([]string{observe.LabelResource, observe.LabelVersion, observe.LabelRepresentation}, more...)
}

// collectionValues returns the values of the labels of a collection in the order of collectionLabels, then more values.
func collectionValues(name CollectionName, more ...string) []string {
	return append([]string{name.Resource, name.Version, name.Representation}, more...)
}

var (
	// About each collection, sent by sendCollections. A feed is the watch that keeps a collection current.
	collectionLiveMetric = newGauge("listproxy_collection_live",
		"1 if lists of the newest state can be answered, else 0 and why (reason).", collectionLabels(observe.LabelReason)...)
	collectionObjectsMetric = newGauge("listproxy_collection_objects", "Objects in the newest state.", collectionLabels()...)
	collectionSizeMetric    = newGauge("listproxy_collection_size_bytes",
		"Bytes stored: objects, their history, and an estimate of the structures around them.", collectionLabels()...)
	collectionHistoryMetric = newGauge("listproxy_collection_history_seconds",
		"Age of the oldest revision that can be asked for.", collectionLabels()...)
	feedLagMetric = newGauge("listproxy_feed_lag_seconds",
		"Upper bound of the age of the newest state: the time since the last probe of the API server's revision that the state has "+
			"reached. It grows until the next probe or, on a quiet resource, bookmark.", collectionLabels()...)
	feedRestartsMetric = newCounter("listproxy_feed_restarts_total",
		"How often a feed began anew, since its state was lost or had to be loaded anew, and why (cause). "+
			"The history begins anew, too.", collectionLabels("cause")...)

	watchesMetric = newGauge("listproxy_watches", "Watches that are answered from memory now, streaming lists among them.",
		collectionLabels()...)
	watchEventsMetric = newCounter("listproxy_watch_events_total",
		"Events of watches from memory, each counted for every client that got it: with bookmarks, without initial events.",
		collectionLabels()...)
	watchEndsMetric = newCounter("listproxy_watch_ends_total", "Watches from memory that have ended, and why (reason).",
		collectionLabels(observe.LabelReason)...)

	// About memory and lookups, sent by Collect.
	storedMetric = newGauge("listproxy_stored_bytes",
		"Bytes that all collections store together, including the states that are being loaded.")
	storedLimitMetric        = newGauge("listproxy_stored_limit_bytes", "The bound on listproxy_stored_bytes (--cache-bytes); 0 is no bound.")
	compressionSizeMetric    = newGauge("listproxy_compression_size_bytes", "Bytes kept of compressed segments.")
	compressionLookupsMetric = newCounter("listproxy_compression_lookups_total",
		"Segments of lists that were compressed already (hit), or had to be compressed (miss).", labelResult)
	reviewLookupsMetric = newCounter("listproxy_review_lookups_total",
		"Callers' rights that were remembered (hit), or had to be reviewed by the API server (miss).", labelResult)
	selfChecksMetric = newCounter("listproxy_selfchecks_total", "Comparisons of memory with the API server: both agree, or they differ and memory "+
		"was dropped (mismatch), or there was no verdict (inconclusive).", labelResult)

	// About requests in flight and connections, sent by sendLoad.
	inflightRequestsMetric = newGauge("listproxy_inflight_requests",
		"Requests in flight: short ones, and those that run for long (watches, logs, execs and the like).", labelKind)
	inflightBytesMetric    = newGauge("listproxy_inflight_bytes", "Bytes of large lists from memory that are being written, before compression.")
	inflightWaitingMetric  = newGauge("listproxy_inflight_waiting", "Requests that wait for their turn, or for memory.", labelKind)
	connectionsMetric      = newGauge("listproxy_connections", "Open connections: of clients, tunnels included, and of the admin port.", labelPort)
	connectionsLimitMetric = newGauge("listproxy_connections_limit",
		"The bound on listproxy_connections (one for each MiB of GOMEMLIMIT, from 256 to 20000).", labelPort)

	// About certificates and the API server, sent by Collect.
	certificateExpiryMetric = newGauge("listproxy_certificate_not_after_timestamp_seconds",
		"Time at which a certificate in use expires, in Unix time. "+
			"For a chain or a file with several CAs, the first to expire counts.", "certificate")
	upstreamOKMetric = newGauge("listproxy_upstream_ok",
		"1 if the API server answers listproxy's own account as it should, else 0 and what is wrong (state).", "state")
)

// Describe implements [prometheus.Collector]. It sends no descriptions, so that the metrics need not be listed twice. That
// makes s an "unchecked collector": the registry does not check the metrics of s at registration, but at each scrape.
func (s *Source) Describe(chan<- *prometheus.Desc) {}

// send sends a metric with a value and the values of its labels.
func send[N int | int64 | uint64 | float64](ch chan<- prometheus.Metric, m metric, value N, labelValues ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.valueType, float64(value), labelValues...)
}

// Collect implements [prometheus.Collector].
func (s *Source) Collect(ch chan<- prometheus.Metric) {
	s.sendCollections(ch)
	bytes, bound := s.Collections.Stored()
	send(ch, storedMetric, bytes)
	send(ch, storedLimitMetric, bound)
	for result, n := range s.Collections.SelfChecks() {
		send(ch, selfChecksMetric, n, string(result))
	}

	compression := s.Compression()
	send(ch, compressionSizeMetric, compression.Kept)
	send(ch, compressionLookupsMetric, compression.Found, "hit")
	send(ch, compressionLookupsMetric, compression.Made, "miss")
	hits, misses := s.ReviewLookups()
	send(ch, reviewLookupsMetric, hits, "hit")
	send(ch, reviewLookupsMetric, misses, "miss")

	s.sendLoad(ch)
	for name, expiry := range s.Certificates() {
		if !expiry.IsZero() {
			send(ch, certificateExpiryMetric, expiry.Unix(), name)
		}
	}
	health := s.Health()
	send(ch, upstreamOKMetric, oneIf(health.Condition == upstream.ConditionOK), string(health.Condition))
}

// sendCollections sends the metrics of all collections. An eager collection, which is loaded at the start, may not exist yet.
// For such a collection, it sends only collectionLiveMetric with the value 0, so that there is a series to alert on.
func (s *Source) sendCollections(ch chan<- prometheus.Metric) {
	now := time.Now()
	exists := map[CollectionName]bool{}
	for _, c := range s.Collections.Stats() {
		name := newCollectionName(c.Key)
		sendCollection(ch, name, c, now)
		exists[name] = true
	}
	for _, e := range s.Eager() {
		name := newCollectionName(snapshot.CollectionKey{GroupVersionResource: e.GroupVersionResource, Representation: e.Representation})
		if !exists[name] {
			send(ch, collectionLiveMetric, 0, collectionValues(name, observe.OrNone(e.WhyNotLoaded))...)
		}
	}
}

// sendCollection sends the metrics of one collection.
func sendCollection(ch chan<- prometheus.Metric, name CollectionName, c snapshot.CollectionStats, now time.Time) {
	send(ch, collectionLiveMetric, oneIf(c.Unavailable == reason.None), collectionValues(name, observe.OrNone(string(c.Unavailable)))...)
	values := collectionValues(name)
	send(ch, collectionObjectsMetric, c.Objects, values...)
	send(ch, collectionSizeMetric, c.Bytes, values...)
	for cause, n := range c.Losses { // each loss of the state restarts the feed
		send(ch, feedRestartsMetric, n, collectionValues(name, string(cause))...)
	}
	if !c.Oldest.IsZero() {
		send(ch, collectionHistoryMetric, secondsSince(c.Oldest, now), values...)
	}
	if !c.CurrentAt.IsZero() {
		send(ch, feedLagMetric, clock.Age(c.CurrentAt, now).Seconds(), values...)
	}
	send(ch, watchesMetric, c.Watches.Open, values...)
	send(ch, watchEventsMetric, c.Watches.Delivered, values...)
	for ending, n := range c.Watches.Ended {
		send(ch, watchEndsMetric, n, collectionValues(name, string(ending))...)
	}
}

// sendLoad sends the metrics of requests in flight, and of open connections.
func (s *Source) sendLoad(ch chan<- prometheus.Metric) {
	for kind, stats := range s.Inflight() {
		if kind == limits.KindBytes { // this limiter counts bytes, the others count requests
			send(ch, inflightBytesMetric, stats.InUse)
		} else {
			send(ch, inflightRequestsMetric, stats.InUse, kind)
		}
		send(ch, inflightWaitingMetric, stats.Waiting, kind)
	}
	for port, connections := range s.Connections {
		send(ch, connectionsMetric, connections.Open(), port)
		send(ch, connectionsLimitMetric, connections.Limit(), port)
	}
}

func oneIf(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

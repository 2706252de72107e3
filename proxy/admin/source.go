package admin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

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

// Source reads the state of listproxy's parts: for /readyz ([Source.Checks]), the status page ([Source.Read]) and
// metrics ([Source.Collect]). It is safe for concurrent use, if its functions are. They must not block.
type Source struct {
	Version string
	// Address is the scheme, host and port of the API server.
	Address string
	// Started is the time at which the process began.
	Started time.Time

	// Draining reports whether shutdown has begun.
	Draining func() bool
	// DiscoveryReady reports whether the resources of the API server are known.
	DiscoveryReady func() bool
	// DefinitionsReady reports whether the definitions of custom resources are known.
	DefinitionsReady func() bool
	// ServersReady reports whether the API servers behind the upstream are known.
	ServersReady func() bool
	// Health returns the state of the API server.
	Health func() upstream.Diagnosis

	Collections collections
	// Eager returns the state of the eager collections. Some may not exist yet.
	Eager func() []proxy.EagerStats
	// Compression returns the counts of the compressor of lists.
	Compression func() gzip.CompressorStats
	// Reviews returns the counts of callers' rights that were asked for.
	Reviews func() auth.Stats
	// Inflight returns the state of each limiter, by what it limits.
	Inflight func() map[string]limits.Stats
	// Connections has the connections of each port, by the port's name.
	Connections map[string]*limits.Connections
	// Certificates returns the times at which the certificates in use expire.
	Certificates func() []serve.Expiry

	// Metrics has all metrics. The status page takes its counts from these, so that both agree.
	Metrics prometheus.Gatherer
}

// collections is the part of [snapshot.Collections] that a Source reads.
type collections interface {
	Stats() []snapshot.CollectionStats
	Stored() (bytes, bound int64)
	Changes() []snapshot.Change
	SelfChecks() map[snapshot.CheckResult]uint64
	Mismatches() map[snapshot.CollectionKey]snapshot.Mismatches
}

// Read returns the current status.
func (s *Source) Read() Status {
	now := time.Now()
	health := s.Health()
	status := Status{
		Version: s.Version, Time: now.UTC(), Uptime: now.Sub(s.Started).Seconds(),
		Upstream: newUpstream(s.Address, health, now),
		// Without a value these are null in JSON.
		Reasons: []Reason{}, Collections: []Collection{}, Changes: []Change{}, Mismatches: []Mismatch{},
	}
	for _, c := range s.Collections.Stats() {
		status.Collections = append(status.Collections, newCollection(c, now))
	}
	for _, c := range s.Collections.Changes() {
		status.Changes = append(status.Changes, Change{
			Object: c.Scope, Cause: string(c.Cause), Description: c.What, Age: now.Sub(c.At).Seconds(),
		})
	}
	for key, mismatches := range s.Collections.Mismatches() {
		status.Mismatches = append(status.Mismatches, Mismatch{
			Resource: key.GroupResource().String(), Version: key.Version, Representation: string(key.Representation),
			Times: mismatches.Count, Age: now.Sub(mismatches.Last).Seconds(),
		})
	}
	status.Memory.Stored, status.Memory.StoredLimit = s.Collections.Stored()
	status.readMetrics(s.Metrics)

	for _, c := range s.Checks() {
		if c.Name == upstreamCheck { // here every failure of the API server counts, but not for readiness: see Checks
			c.OK = health.Condition == upstream.ConditionOK
		}
		status.Checks = append(status.Checks, c)
	}
	status.Checks = append(status.Checks, checkFeeds(status.Collections))
	status.Healthy = allOK(status.Checks)
	status.sort()
	return status
}

func newUpstream(address string, health upstream.Diagnosis, now time.Time) Upstream {
	u := Upstream{
		Address: address, State: string(health.Condition), StateAge: secondsSince(health.Since, now),
		Error: health.Problem, Advice: health.Advice,
	}
	if !health.Answered.IsZero() {
		u.AnswerAge = new(secondsSince(health.Answered, now))
	}
	return u
}

// secondsSince returns the seconds from then to now; 0 if then is later, because another goroutine has just set it.
func secondsSince(then, now time.Time) float64 { return max(0, now.Sub(then).Seconds()) }

func newCollection(c snapshot.CollectionStats, now time.Time) Collection {
	collection := Collection{
		Resource: c.Key.GroupResource().String(), Version: c.Key.Version, Representation: string(c.Key.Representation),
		State: StateLive, From: c.From, To: c.To, Objects: c.Objects, Bytes: c.Bytes, Watches: c.Watches.Open,
		Idle: now.Sub(c.LastUse).Seconds(), Window: c.Window.Seconds(),
	}
	if c.Unavailable != reason.None {
		collection.State = string(c.Unavailable)
	}
	if !c.CurrentAt.IsZero() {
		collection.Age = new(clock.Age(c.CurrentAt, now).Seconds())
	}
	if !c.Oldest.IsZero() {
		collection.History = now.Sub(c.Oldest).Seconds()
	}
	return collection
}

// checkFeeds returns the check that no collection is stale. If a collection is unavailable for another reason, its feed
// has no fault: the collection is loading, for example, or may not be listed.
func checkFeeds(collections []Collection) Check {
	stale := 0
	for _, c := range collections {
		if c.State == string(reason.Stale) {
			stale++
		}
	}
	return newCheck("feeds", stale == 0, fmt.Sprintf("nothing new was heard of %d of the collections for longer than "+
		"--staleness-bound, so lists of their newest state are forwarded (stale)", stale))
}

// The names of the metrics that are read (docs/observability.md).
const (
	metricRequests        = "listproxy_requests_total"
	metricCompressedBytes = "listproxy_compression_size_bytes"
	metricProcessBytes    = "process_resident_memory_bytes"
	metricProcessLimit    = "go_gc_gomemlimit_bytes"
)

// noLimit is above any real memory limit. Without a limit the runtime reports 8 EiB.
const noLimit = 1 << 60

// readMetrics sets the counts and sizes that are read from metrics.
func (s *Status) readMetrics(metrics prometheus.Gatherer) {
	families, _ := metrics.Gather() // what cannot be read is left out, and logged at each scrape
	reasons := map[string]Reason{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			gauge := int64(series.GetGauge().GetValue()) // 0 if it is a counter
			switch family.GetName() {
			case metricRequests:
				s.countRequests(series, reasons)
			case metricCompressedBytes:
				s.Memory.Compressed = gauge
			case metricProcessBytes:
				s.Memory.Process = gauge
			case metricProcessLimit:
				if gauge < noLimit {
					s.Memory.ProcessLimit = gauge
				}
			}
		}
	}
	s.Lists.setShare()
	s.Watches.setShare()
	s.Reasons = slices.AppendSeq(s.Reasons, maps.Values(reasons))
}

// countRequests adds the requests of one series of [metricRequests] to the counts of s and to reasons, if they are lists
// or watches.
func (s *Status) countRequests(series *dto.Metric, reasons map[string]Reason) {
	labels := map[string]string{}
	for _, label := range series.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	count := int64(series.GetCounter().GetValue())
	var lists, watches int64
	switch labels[observe.LabelVerb] {
	case observe.VerbList:
		lists = count
	case observe.VerbWatch:
		watches = count
	default:
		return
	}
	switch labels[observe.LabelDecision] {
	case observe.DecisionServe:
		s.Lists.Answered += lists
		s.Watches.Answered += watches
	case observe.DecisionForward:
		s.Lists.Forwarded += lists
		s.Watches.Forwarded += watches
		name := labels[observe.LabelReason]
		r := reasons[name]
		r.Reason = name
		r.Meaning, _ = reason.Reason(name).Explain()
		r.Lists += lists
		r.Watches += watches
		reasons[name] = r
	}
}

package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// Source reads the [Status]. Counts come from the metrics, so that both agree. It is safe for concurrent use, if its
// fields are.
type Source struct {
	Version, Upstream string
	// Started is the time at which the process began.
	Started     time.Time
	Ready       Readiness
	Metrics     prometheus.Gatherer
	Collections collections
	// Staleness is the age from which on a newest state is no longer given.
	Staleness time.Duration
	// Window returns the length of the history that is to be kept of a resource.
	Window func(schema.GroupVersionResource) time.Duration
}

// collections is the part of [snapshot.Collections] that a Source reads.
type collections interface {
	Stats() []snapshot.CollectionStats
	Stored() (bytes, bound int64)
	Changes() []snapshot.Change
	Mismatched() map[snapshot.CollectionKey]snapshot.CheckStats
}

// Read returns the current status.
func (s *Source) Read() Status {
	now := time.Now()
	health := s.Ready.Upstream()
	status := Status{
		Version: s.Version, Time: now.UTC(), Uptime: now.Sub(s.Started).Seconds(), Upstream: s.upstream(health, now),
		Reasons: []Reason{}, Collections: []Collection{}, Changes: []Change{}, Mismatches: []Mismatch{},
	}
	for _, c := range s.Ready.Checks() {
		if c.Name == upstreamCheck { // readiness does not end with it: see Readiness.Checks
			c.OK = health.Condition == upstream.ConditionOK
		}
		status.Checks = append(status.Checks, c)
	}
	for _, c := range s.Collections.Stats() {
		status.Collections = append(status.Collections, s.collection(c, now))
	}
	for _, c := range s.Collections.Changes() {
		status.Changes = append(status.Changes, Change{Of: c.Of, Cause: string(c.Cause), What: c.What, Age: now.Sub(c.At).Seconds()})
	}
	for key, checks := range s.Collections.Mismatched() {
		status.Mismatches = append(status.Mismatches, Mismatch{
			Resource: key.GroupResource().String(), Version: key.Version, Representation: string(key.Representation),
			Times: checks.Mismatches, Age: now.Sub(checks.Mismatched).Seconds(),
		})
	}
	status.Memory.Stored, status.Memory.StoredLimit = s.Collections.Stored()
	status.Checks = append(status.Checks, status.readMetrics(s.Metrics), status.checkFeeds())
	status.Healthy = allOK(status.Checks)
	status.sort()
	return status
}

func (s *Source) upstream(health upstream.HealthStats, now time.Time) Upstream {
	upstream := Upstream{
		Address: s.Upstream, State: string(health.Condition), Seconds: max(0, now.Sub(health.Since).Seconds()),
		Error: health.Problem, Advice: health.Advice,
	}
	if !health.Answered.IsZero() {
		upstream.Answered = new(max(0, now.Sub(health.Answered).Seconds()))
	}
	return upstream
}

func (s *Source) collection(c snapshot.CollectionStats, now time.Time) Collection {
	gvr := c.Resource.GroupVersionResource
	collection := Collection{
		Resource: gvr.GroupResource().String(), Version: gvr.Version, Representation: string(c.Resource.Representation),
		State: StateLive, From: c.From, To: c.To, Objects: c.Objects, Bytes: c.Bytes, Watches: c.Watches.Open,
		Idle: now.Sub(c.Used).Seconds(), Window: s.Window(gvr).Seconds(),
	}
	if unavailable := reasonUnavailable(c, now, s.Staleness); unavailable != reason.None {
		collection.State = string(unavailable)
	}
	if !c.CurrentAt.IsZero() {
		collection.Age = new(clock.Age(c.CurrentAt, now).Seconds())
	}
	if !c.Oldest.IsZero() {
		collection.History = now.Sub(c.Oldest).Seconds()
	}
	return collection
}

// reasonUnavailable returns the reason for which a collection cannot answer lists of the newest state now, or None. Its
// state may be too old, or cannot be proven to be the newest.
func reasonUnavailable(c snapshot.CollectionStats, now time.Time, staleness time.Duration) reason.Reason {
	if c.Unavailable == reason.None && c.NoBookmarks {
		return reason.NotProven
	}
	if c.Unavailable == reason.None && staleness > 0 && clock.Age(c.CurrentAt, now) >= staleness {
		return reason.Stale
	}
	return c.Unavailable
}

// checkFeeds returns the check that no collection is stale. One that is unavailable for another reason is rightly
// forwarded.
func (s *Status) checkFeeds() Check {
	const maxNamed = 5
	var stale []string
	for _, c := range s.Collections {
		if c.State == string(reason.Stale) {
			stale = append(stale, c.Name())
		}
	}
	slices.Sort(stale)
	names := strings.Join(stale[:min(len(stale), maxNamed)], ", ")
	if len(stale) > maxNamed {
		names += fmt.Sprintf(" and %d more", len(stale)-maxNamed)
	}
	return check("feeds", len(stale) == 0, "nothing new was heard of these for longer than --staleness-bound, so lists of their newest "+
		"state are forwarded (stale): "+names)
}

// The names of the metrics that are read (docs/observability.md).
const (
	requestsTotal   = "listproxy_requests_total"
	compressedBytes = "listproxy_compression_size_bytes"
	processBytes    = "process_resident_memory_bytes"
	processLimit    = "go_gc_gomemlimit_bytes"
	// noLimit is above any real limit. Without one, the runtime's is 8 EiB.
	noLimit = 1 << 60
)

// readMetrics sets the counts and sizes of s, and returns the check that they can be read.
func (s *Status) readMetrics(metrics prometheus.Gatherer) Check {
	families, err := metrics.Gather()
	if err != nil {
		return Check{Name: "metrics", Message: "some could not be read: " + err.Error()}
	}
	reasons := map[string]Reason{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			value := int64(m.GetGauge().GetValue())
			switch family.GetName() {
			case requestsTotal:
				s.countRequests(m, reasons)
			case compressedBytes:
				s.Memory.Compressed = value
			case processBytes:
				s.Memory.Process = value
			case processLimit:
				if value < noLimit {
					s.Memory.ProcessLimit = value
				}
			}
		}
	}
	for _, answers := range []*Answers{&s.Lists, &s.Watches} {
		total := answers.Answered + answers.Forwarded
		if total > 0 {
			answers.Share = new(float64(answers.Answered) / float64(total))
		}
	}
	for _, r := range reasons {
		s.Reasons = append(s.Reasons, r)
	}
	return Check{Name: "metrics", OK: true}
}

// countRequests adds one series of listproxy_requests_total, if it is of lists or watches.
func (s *Status) countRequests(m *dto.Metric, reasons map[string]Reason) {
	labels := map[string]string{}
	for _, label := range m.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	var answers *Answers
	switch labels[observe.LabelVerb] {
	case observe.VerbList:
		answers = &s.Lists
	case observe.VerbWatch:
		answers = &s.Watches
	default:
		return
	}
	count := int64(m.GetCounter().GetValue())
	switch labels[observe.LabelDecision] {
	case observe.DecisionServe:
		answers.Answered += count
	case observe.DecisionForward:
		answers.Forwarded += count
		why := labels[observe.LabelReason]
		r := reasons[why]
		r.Reason = why
		r.Meaning, _ = reason.Reason(why).Explain()
		if answers == &s.Lists {
			r.Lists += count
		} else {
			r.Watches += count
		}
		reasons[why] = r
	}
}

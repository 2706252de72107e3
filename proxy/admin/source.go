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

// Source is where the [Status] is read when somebody asks for it. What metrics count is read from the
// metrics, so that both agree. Its fields are safe for concurrent use, and so is Read.
type Source struct {
	Version, Upstream string
	// Started is the time at which the process began.
	Started     time.Time
	Ready       Readiness
	Metrics     prometheus.Gatherer
	Collections collections
	// Staleness is the age from which on a newest state is no longer given.
	Staleness time.Duration
	// Window says how long the history of a resource is to reach back.
	Window func(schema.GroupVersionResource) time.Duration
}

// collections is what [snapshot.Collections] tell of themselves.
type collections interface {
	Stats() []snapshot.CollectionStats
	Stored() (bytes, bound int64)
	Changes() []snapshot.Change
	Mismatched() map[snapshot.CollectionKey]snapshot.CheckStats
}

// Read returns the status of now.
func (s *Source) Read() Status {
	now := time.Now()
	health := s.Ready.Upstream()
	status := Status{
		Version: s.Version, Time: now.UTC(), Uptime: now.Sub(s.Started).Seconds(), Upstream: s.upstream(health, now),
		Reasons: []Reason{}, Collections: []Collection{}, Changes: []Change{}, Mismatches: []Mismatch{},
	}
	for _, c := range s.Ready.Checks() {
		if c.Name == upstreamCheck { // clients may come even if it is not well: see Readiness.Checks
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
	for r, found := range s.Collections.Mismatched() {
		status.Mismatches = append(status.Mismatches, Mismatch{
			Resource: r.GroupResource().String(), Version: r.Version, Representation: string(r.Representation),
			Times: found.Mismatches, Age: now.Sub(found.Mismatched).Seconds(),
		})
	}
	status.Memory.Stored, status.Memory.StoredLimit = s.Collections.Stored()
	status.Checks = append(status.Checks, status.readMetrics(s.Metrics), status.feedsCheck())
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
	if unavailable := absenceOf(c, now, s.Staleness); unavailable != reason.None {
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

// absenceOf returns the reason why a collection cannot answer lists of the newest state now: its state may be too
// old for that, or nothing can be proven.
func absenceOf(c snapshot.CollectionStats, now time.Time, staleness time.Duration) reason.Reason {
	if c.Unavailable == reason.None && c.NoBookmarks {
		return reason.NotProven
	}
	if c.Unavailable == reason.None && staleness > 0 && clock.Age(c.CurrentAt, now) >= staleness {
		return reason.Stale
	}
	return c.Unavailable
}

// feedsCheck reports whether all feeds hear from the upstream. A resource that is not kept for another
// reason is rightly forwarded.
func (s *Status) feedsCheck() Check {
	const maxNamed = 5
	var silent []string
	for _, c := range s.Collections {
		if c.State == string(reason.Stale) {
			silent = append(silent, c.Name())
		}
	}
	slices.Sort(silent)
	names := strings.Join(silent[:min(len(silent), maxNamed)], ", ")
	if more := len(silent) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return check("feeds", len(silent) == 0, "nothing new was heard of these for longer than --staleness-bound, so lists of their newest "+
		"state are forwarded (stale): "+names)
}

// The metrics that are read, by their names at Prometheus (docs/observability.md).
const (
	requestsTotal   = "listproxy_requests_total"
	compressedBytes = "listproxy_compression_size_bytes"
	processBytes    = "process_resident_memory_bytes"
	processLimit    = "go_gc_gomemlimit_bytes"
	// noLimit is far above any limit: without one, the runtime says that it is 8 EiB.
	noLimit = 1 << 60
)

// readMetrics reads what metrics count, and says whether that could be read.
func (s *Status) readMetrics(metrics prometheus.Gatherer) Check {
	families, err := metrics.Gather()
	if err != nil {
		return Check{Name: "metrics", Message: "some could not be read: " + err.Error()}
	}
	reasons := map[string]Reason{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch value := int64(m.GetGauge().GetValue()); family.GetName() {
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
		if all := answers.Answered + answers.Forwarded; all > 0 {
			answers.Share = new(float64(answers.Answered) / float64(all))
		}
	}
	for _, r := range reasons {
		s.Reasons = append(s.Reasons, r)
	}
	return Check{Name: "metrics", OK: true}
}

// countRequests counts those of one series of requests, if they are lists or watches.
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
	n := int64(m.GetCounter().GetValue())
	switch why := labels[observe.LabelReason]; labels[observe.LabelDecision] {
	case observe.DecisionServe:
		answers.Answered += n
	case observe.DecisionForward:
		answers.Forwarded += n
		r := reasons[why]
		r.Reason, r.Meaning = why, reason.Reason(why).Summary()
		if answers == &s.Lists {
			r.Lists += n
		} else {
			r.Watches += n
		}
		reasons[why] = r
	}
}

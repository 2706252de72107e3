package admin

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// StatusSource is where the numbers of the status page are read, when somebody asks for the page.
// Numbers that metrics count are read from the metrics, so that both agree. Its fields are safe for
// concurrent use, and so is Read. Nil fields of State are left out.
type StatusSource struct {
	State
	Version, Upstream string
	// Started is when the process began.
	Started time.Time
	// Ready is as in [New].
	Ready   func() (ok bool, details []statusz.Check)
	Metrics prometheus.Gatherer
	// Observer knows callers.
	Observer *observe.Observer
	// Window says how long the history of a resource is to reach back.
	Window func(schema.GroupVersionResource) time.Duration
	// CompressedBound bounds what is kept of compressed lists.
	CompressedBound int64
	Flags           func() []statusz.Flag
	// SelfCheck is how often each collection is compared with the upstream; 0 is never. Mismatched
	// returns the collections in which a difference was ever found; nil means none.
	SelfCheck  time.Duration
	Mismatched func() map[snapshot.Resource]checks.Stats
	// Endpoints are the API servers of --upstream; nil or none without it.
	Endpoints func() []upstream.EndpointStats
	// Policy, Eager and Traces do not change.
	Policy statusz.Policy
	Eager  []statusz.Eager
	Traces statusz.Traces

	samples samples
}

// Read returns the status of now.
func (s *StatusSource) Read() statusz.Status {
	now := time.Now()
	var logins []upstream.Login
	status := statusz.Status{
		Version: s.Version, GoVersion: runtime.Version(), Upstream: s.Upstream,
		Time: now.UTC(), Uptime: now.Sub(s.Started).Seconds(),
		Collections: []statusz.Collection{}, Callers: s.Observer.Callers(), Flags: s.Flags(),
		SelfChecks: s.selfChecks(now), Policy: s.Policy, Eager: s.Eager, Traces: s.Traces, Runtime: statusz.ReadRuntime(),
	}
	if s.Health != nil {
		health := s.Health()
		status.UpstreamState, logins = upstreamState(health, now), health.Logins
		status.Checks = append(status.Checks, upstreamCheck(health))
	}
	_, details := s.Ready()
	for _, c := range details {
		if s.Health != nil && c.Name == upstreamCheckName {
			continue // it is there already, and says more
		}
		status.Checks = append(status.Checks, statusz.Check{Name: c.Name, OK: c.OK, Message: checkWords(c)})
	}
	counts, err := s.readCounts()
	if err != nil {
		status.Checks = append(status.Checks, statusz.Check{Name: "metrics", Message: "some could not be read: " + err.Error()})
	}
	if s.Endpoints != nil {
		status.Endpoints = endpointsStatus(s.Endpoints(), now)
	}
	streaming := s.Observer.Streaming()
	status.Lists, status.Resources = counts.lists(streaming), counts.resourcesOf(streaming)
	traffic, before := s.trafficCounts(counts), s.samples.before(now, s.Started)
	status.Recent = traffic.since(before.counts, now.Sub(before.at))
	status.Total = traffic.since(trafficCounts{}, now.Sub(s.Started))
	if s.Inflight != nil {
		status.Inflight = inflightStatus(s.Inflight())
	}
	if s.Collections != nil {
		for _, c := range s.Collections() {
			status.Collections = append(status.Collections, s.collection(now, c))
		}
		status.Checks = append(status.Checks, feedsCheck(status.Collections))
	}
	var certificates []certs.Expiry
	if s.Certificates != nil {
		certificates = s.Certificates()
	}
	status.Ends = endsOf(certificates, logins, now)
	if s.Stored != nil {
		status.Memory.Stored, status.Memory.StoredBound = s.Stored()
	}
	if s.Compression != nil {
		status.Memory.Compressed, status.Memory.CompressedBound = s.Compression().Kept, s.CompressedBound
	}
	status.Healthy = !slices.ContainsFunc(status.Checks, func(c statusz.Check) bool { return !c.OK })
	status.Sort()
	return status
}

// collection says what there is to say of one collection.
func (s *StatusSource) collection(now time.Time, c snapshot.CollectionStats) statusz.Collection {
	gvr := c.Resource.GroupVersionResource
	status := statusz.Collection{
		Resource: gvr.GroupResource().String(), Version: gvr.Version, Representation: string(c.Resource.Representation),
		State: statusz.StateLive, Objects: c.Objects, Versions: c.Versions, Bytes: c.Bytes, Revision: c.Revision(),
		Bound: s.Staleness.Seconds(),
		Idle:  now.Sub(c.Used).Seconds(), Window: s.Window(gvr).Seconds(),
		Spans: []statusz.Span{}, Restarts: int64(c.Feed.Restarts()), // #nosec G115 -- a count
		Watches:   c.Watches.Open,
		SelfCheck: s.selfCheck(now, c.Check),
	}
	if absence := absenceOf(c, now, s.Staleness); absence != reason.None {
		status.State = string(absence)
	}
	if !c.Heard.IsZero() {
		lag := clock.Age(c.Heard, now).Seconds()
		status.Lag = &lag
	}
	if !c.Oldest.IsZero() {
		status.History = now.Sub(c.Oldest).Seconds()
	}
	for _, span := range c.Spans {
		status.Spans = append(status.Spans, statusz.Span{From: span.From, To: span.To})
	}
	return status
}

// absenceOf says why a collection cannot answer lists of the newest state now: its state may be too
// old for that.
func absenceOf(c snapshot.CollectionStats, now time.Time, staleness time.Duration) reason.Reason {
	if c.Absence == reason.None && staleness > 0 && clock.Age(c.Heard, now) >= staleness {
		return reason.Stale
	}
	return c.Absence
}

// feedsCheck says whether all feeds hear from the upstream. A resource that is not kept for another
// reason is rightly forwarded.
func feedsCheck(collections []statusz.Collection) statusz.Check {
	check := statusz.Check{Name: "feeds", OK: true}
	var silent []string
	for _, c := range collections {
		if c.State == string(reason.Stale) {
			silent = append(silent, c.Name())
		}
	}
	if len(silent) > 0 {
		slices.Sort(silent)
		check.OK = false
		check.Message = "nothing new was heard of these for longer than --staleness-bound, so lists of their newest " +
			"state are forwarded (stale): " + enumerate(silent)
	}
	return check
}

// maxNamed is how many names are listed if there are many.
const maxNamed = 5

// enumerate names the first few of many.
func enumerate(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// checkWords returns the message of a check; if it has none and is not OK, it returns words for
// that.
func checkWords(c statusz.Check) string {
	if c.OK || c.Message != "" {
		return c.Message
	}
	switch c.Name {
	case "discovery":
		return "the API server has not said which resources it has: see whether it can be reached, and the log"
	case "schemas":
		return "the definitions of custom resources are not read: see whether the API server can be reached, and the log"
	case "servers":
		return "the API servers behind the upstream are not known: see whether it can be reached, and the log"
	}
	return ""
}

// counts are the counters of metrics that the status page shows.
type counts struct {
	answered, refused, other, savedBytes int64
	forwarded                            map[string]int64 // lists, by reason
	newest                               statusz.Newest
	resources                            map[string]*resourceCounts
	traffic                              trafficCounts
}

// resourceCounts are those of one resource.
type resourceCounts struct {
	answered  int64
	forwarded map[string]int64 // by reason
}

// of returns the counts of a resource, by its label.
func (c *counts) of(label string) *resourceCounts {
	found, ok := c.resources[label]
	if !ok {
		found = &resourceCounts{forwarded: map[string]int64{}}
		c.resources[label] = found
	}
	return found
}

// The metrics that are read, by their names at Prometheus (docs/observability.md).
const (
	requestsTotal   = "listproxy_requests_total"
	savedBytesTotal = "listproxy_saved_bytes_total"
	estimatesTotal  = "listproxy_newest_estimate_total"
)

// readCounts reads what can be read, even if there is an error.
func (s *StatusSource) readCounts() (counts, error) {
	c := counts{forwarded: map[string]int64{}, resources: map[string]*resourceCounts{}}
	ended := s.Observer.WatchesEnded() // first: metrics count a watch before it is among these
	families, err := s.Metrics.Gather()
	for _, family := range families {
		c.traffic.addHistograms(family)
		for _, m := range family.GetMetric() {
			n := int64(m.GetCounter().GetValue())
			switch family.GetName() {
			case requestsTotal:
				c.addRequests(m, n)
			case savedBytesTotal:
				c.savedBytes += n
			case estimatesTotal:
				c.newest.Estimated += n
				if labelOf(m, string(observe.LabelReason)) == observe.OrNone("") {
					c.newest.WouldAnswer += n
				}
			}
		}
	}
	for watch, n := range ended {
		c.uncountWatches(watch, n)
	}
	return c, err
}

// uncountWatches subtracts n forwarded watches from the lists, since metrics count them like lists.
// Streaming lists are counted apart.
func (c *counts) uncountWatches(watch observe.ForwardedWatch, n int64) {
	if observe.OfLists(watch.Reason) {
		if watch.Newest {
			c.newest.Forwarded -= n
		}
		subtract(c.forwarded, watch.Reason, n)
		subtract(c.of(watch.Resource).forwarded, watch.Reason, n)
		c.other += n
	}
	if watch.Streaming {
		c.other -= n
	}
}

// subtract subtracts from a count. What is 0 then is not there.
func subtract(counts map[string]int64, of string, n int64) {
	if counts[of] -= n; counts[of] <= 0 {
		delete(counts, of)
	}
}

func (c *counts) addRequests(m *dto.Metric, n int64) {
	reason, resource := labelOf(m, string(observe.LabelReason)), labelOf(m, string(observe.LabelResource))
	semantics := labelOf(m, string(observe.LabelSemantics))
	newest, watch := semantics == string(policy.MostRecent), semantics == string(policy.After)
	decision := labelOf(m, string(observe.LabelDecision))
	if labelOf(m, string(observe.LabelCode)) == "429" {
		switch decision {
		case observe.DecisionForward:
			c.traffic.upstreamTooMany += n
		case observe.DecisionRefuse:
			c.traffic.tooMany += n
		}
	}
	switch decision {
	case observe.DecisionServe:
		if watch {
			return // it is no list; collections tell of their watches
		}
		c.answered += n
		c.of(resource).answered += n
		if newest {
			c.newest.Proven += n
		}
	case observe.DecisionRefuse:
		c.refused += n
	case observe.DecisionForward:
		if observe.OfLists(reason) {
			if newest {
				c.newest.Forwarded += n
			}
			c.forwarded[reason] += n
			c.of(resource).forwarded[reason] += n
		} else {
			c.other += n
		}
	}
}

// lists returns how lists were answered; streamingOf are the streaming lists that were forwarded.
func (c counts) lists(streamingOf map[string]int64) statusz.Lists {
	var streaming int64
	for _, n := range streamingOf {
		streaming += n
	}
	lists := statusz.Lists{
		Answered: c.answered, Refused: c.refused, Streaming: streaming, Other: max(0, c.other), SavedBytes: c.savedBytes,
		Reasons: []statusz.Reason{}, Newest: c.newest,
	}
	for why, n := range c.forwarded {
		lists.Forwarded += n
		lists.Reasons = append(lists.Reasons, statusz.Reason{Reason: why, Lists: n, Meaning: reason.Reason(why).Summary()})
	}
	if streaming > 0 {
		lists.Reasons = append(lists.Reasons, statusz.Reason{
			Reason: observe.ReasonStreaming, Lists: streaming,
			Meaning: "streaming lists (sendInitialEvents), with which informers of current client-go begin; Cache-Status says why",
		})
	}
	lists.SetShare()
	return lists
}

// resourcesOf says what became of the lists of each resource, in no order.
func (c counts) resourcesOf(streaming map[string]int64) []statusz.Resource {
	for label := range streaming {
		c.of(label)
	}
	all := make([]statusz.Resource, 0, len(c.resources))
	for label, counted := range c.resources {
		if counted.answered+streaming[label] == 0 && len(counted.forwarded) == 0 {
			continue // watches only
		}
		r := statusz.Resource{Resource: label, Answered: counted.answered, Streaming: streaming[label]}
		r.Reason, r.ReasonLists = observe.ReasonStreaming, r.Streaming
		for reason, n := range counted.forwarded {
			r.Forwarded += n
			if n > r.ReasonLists || n == r.ReasonLists && reason < r.Reason {
				r.Reason, r.ReasonLists = reason, n
			}
		}
		if r.ReasonLists == 0 {
			r.Reason = ""
		}
		r.SetShare()
		all = append(all, r)
	}
	return all
}

// labelOf returns the value of a label, or nothing.
func labelOf(m *dto.Metric, name string) string {
	for _, label := range m.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

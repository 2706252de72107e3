package observe

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/policy"
)

// Instrumentation is the name of the scope of all metrics and spans.
const Instrumentation = "github.com/listproxy/listproxy/proxy"

// The decisions about a request, in metrics and traces.
const (
	DecisionServe   = "serve"
	DecisionForward = "forward"
	// DecisionRefuse: listproxy itself said no (see refused.go).
	DecisionRefuse = "refuse"
)

// What a request asks for, in metrics: all else but a list or a watch is [OtherLabel].
const (
	VerbList  = "list"
	VerbWatch = "watch"
)

// For what the upstream is asked.
const (
	purposeForward = "forward"
	purposeReview  = "review"
	purposeWhoAmI  = "whoami"
	purposeFeed    = "feed"
)

// Labels, named as attributes of OpenTelemetry. Those of spans have a prefix (tracing.go).
var (
	LabelResource       = attribute.Key("resource")
	LabelVerb           = attribute.Key("verb")
	LabelSemantics      = attribute.Key("semantics")
	LabelDecision       = attribute.Key("decision")
	LabelReason         = attribute.Key("reason")
	LabelCode           = attribute.Key("code")
	labelPurpose        = attribute.Key("purpose")
	LabelRepresentation = attribute.Key("representation")
	LabelVersion        = attribute.Key("version")
	labelRequest        = attribute.Key("request")
	LabelKind           = attribute.Key("kind")
	LabelResult         = attribute.Key("result")
	LabelCause          = attribute.Key("cause")
	LabelCertificate    = attribute.Key("certificate")
)

// durations are the bounds of histograms, in seconds: a page from memory takes some fifty
// microseconds, a big list of kube-apiserver seconds.
var durations = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
}

// requestLabels are the labels of one request. Each has few values.
type requestLabels struct {
	resource  string
	verb      string
	semantics policy.Semantics
	decision  string
	reason    string
	code      int
}

// requestMetrics count what becomes of requests.
type requestMetrics struct {
	requests   metric.Int64Counter
	duration   metric.Float64Histogram
	sent       metric.Int64Counter
	savedLists metric.Int64Counter
	savedBytes metric.Int64Counter
	upstream   *upstreamMetrics

	series seriesOf[requestLabels, requestSeries]
}

// requestSeries are the attributes of the series that a request counts in. They are made once:
// making them costs more than counting.
type requestSeries struct {
	all, sent, saved []metric.AddOption
	duration         []metric.RecordOption
	upstream         []metric.AddOption
}

func newRequestMetrics(meter metric.Meter, upstream *upstreamMetrics) (*requestMetrics, error) {
	m := &requestMetrics{upstream: upstream}
	var errs [5]error
	m.requests, errs[0] = meter.Int64Counter("listproxy.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that have ended."))
	m.duration, errs[1] = meter.Float64Histogram("listproxy.request.duration", metric.WithUnit("s"),
		metric.WithDescription("How long requests took until their end, without watches, logs, execs and the like."),
		metric.WithExplicitBucketBoundaries(durations...))
	m.sent, errs[2] = meter.Int64Counter("listproxy.response.body", metric.WithUnit("By"),
		metric.WithDescription("Bytes of answers, as sent: after compression, before TLS."))
	m.savedLists, errs[3] = meter.Int64Counter("listproxy.saved.lists", metric.WithUnit("{list}"),
		metric.WithDescription("Lists that the API server did not have to answer."))
	m.savedBytes, errs[4] = meter.Int64Counter("listproxy.saved", metric.WithUnit("By"),
		metric.WithDescription("Bytes that the API server did not have to encode, before compression."))
	m.series.make = newRequestSeries
	m.series.other = func(l requestLabels) requestLabels {
		l.resource = OtherLabel
		return l
	}
	return m, errors.Join(errs[:]...)
}

func newRequestSeries(l requestLabels) requestSeries {
	resource := LabelResource.String(l.resource)
	semantics := LabelSemantics.String(OrNone(string(l.semantics)))
	decision := LabelDecision.String(OrNone(l.decision))
	code := LabelCode.String(codeLabel(l.code))
	few := metric.WithAttributeSet(attribute.NewSet(resource, semantics, decision))
	return requestSeries{
		all: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(
			resource, LabelVerb.String(l.verb), semantics, decision, LabelReason.String(OrNone(l.reason)), code))},
		sent:     []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(resource, decision))},
		saved:    []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(resource))},
		duration: []metric.RecordOption{few},
		upstream: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(labelPurpose.String(purposeForward), code))},
	}
}

// OrNone returns the value of a label, which is "none" where it does not apply.
func OrNone(value string) string {
	if value == "" {
		return noneLabel
	}
	return value
}

// count counts a request that has ended.
func (m *requestMetrics) count(ctx context.Context, l requestLabels, took time.Duration, long bool, sent int64, served Served) {
	l.code = definedCode(l.code)
	s := m.series.of(l)
	m.requests.Add(ctx, 1, s.all...)
	m.sent.Add(ctx, sent, s.sent...)
	if !long {
		m.duration.Record(ctx, took.Seconds(), s.duration...)
	}
	switch l.decision {
	case DecisionServe:
		if !served.NoList {
			m.savedLists.Add(ctx, 1, s.saved...)
		}
		m.savedBytes.Add(ctx, int64(served.Bytes), s.saved...)
	case DecisionForward:
		m.upstream.requests.Add(ctx, 1, s.upstream...)
	}
}

// upstreamMetrics count what listproxy asks of the API server.
type upstreamMetrics struct {
	requests metric.Int64Counter
	reviews  metric.Float64Histogram
	series   seriesOf[upstreamLabels, []metric.AddOption]
	byCode   seriesOf[int, []metric.RecordOption]
}

type upstreamLabels struct {
	purpose string
	code    int
}

func newUpstreamMetrics(meter metric.Meter) (*upstreamMetrics, error) {
	m := &upstreamMetrics{}
	var errs [2]error
	m.requests, errs[0] = meter.Int64Counter("listproxy.upstream.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests to the API server: forwarded ones, reviews of callers' rights, requests that ask who a caller is "+
			"(whoami), and those of feeds."))
	m.reviews, errs[1] = meter.Float64Histogram("listproxy.review.duration", metric.WithUnit("s"),
		metric.WithDescription("How long the API server took to begin its answer to a review."),
		metric.WithExplicitBucketBoundaries(durations...))
	m.series.make = func(l upstreamLabels) []metric.AddOption {
		return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(
			labelPurpose.String(l.purpose), LabelCode.String(codeLabel(l.code))))}
	}
	m.byCode.make = func(code int) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(LabelCode.String(codeLabel(code))))}
	}
	return m, errors.Join(errs[:]...)
}

// asked counts a request to the API server; code is 0 where there was no answer.
func (m *upstreamMetrics) asked(ctx context.Context, purpose string, code int) {
	m.requests.Add(ctx, 1, m.series.of(upstreamLabels{purpose, definedCode(code)})...)
}

func (m *upstreamMetrics) reviewed(ctx context.Context, took time.Duration, code int) {
	m.asked(ctx, purposeReview, code)
	m.reviews.Record(ctx, took.Seconds(), m.byCode.of(definedCode(code))...)
}

// maxSeries is after how many different labels a new one has no resource any more. A caller who may
// list many resources can ask for each in every way there is, and custom resources come and go.
// Without the resource, a few hundred labels are left.
const maxSeries = 4000

// seriesOf keeps what was made of labels, and forgets none. Reading takes no lock and allocates
// nothing.
type seriesOf[K comparable, V any] struct {
	make func(K) V
	// other returns the labels that stand for new ones when there are maxSeries; nil if there cannot
	// be so many.
	other func(K) K

	mu    sync.Mutex
	known atomic.Pointer[map[K]V]
}

func (s *seriesOf[K, V]) get(labels K) (v V, ok bool) {
	if known := s.known.Load(); known != nil {
		v, ok = (*known)[labels]
	}
	return v, ok
}

func (s *seriesOf[K, V]) of(labels K) V {
	if v, ok := s.get(labels); ok {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.get(labels); ok {
		return v
	}
	grown := map[K]V{}
	if known := s.known.Load(); known != nil {
		if len(*known) >= maxSeries && s.other != nil {
			labels = s.other(labels)
			if v, ok := (*known)[labels]; ok {
				return v
			}
		}
		maps.Copy(grown, *known)
	}
	v := s.make(labels)
	grown[labels] = v
	s.known.Store(&grown)
	return v
}

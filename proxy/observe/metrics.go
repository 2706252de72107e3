package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/listproxy/listproxy/policy"
)

// The decisions about a request, in metrics and traces.
const (
	DecisionServe   = "serve" // from memory
	DecisionForward = "forward"
	DecisionRefuse  = "refuse" // by listproxy itself (see refused.go)
)

// The verbs of requests in metrics. Other verbs are [OtherLabel].
const (
	VerbList  = "list"
	VerbWatch = "watch"
)

// Purpose is the purpose of a request to the API server, in metrics.
type Purpose string

const (
	purposeForward Purpose = "forward"
	purposeFeed    Purpose = "feed"
	// PurposeReview is the purpose of requests that ask what a caller may do.
	PurposeReview Purpose = "review"
	// PurposeWhoAmI is the purpose of requests that ask who a caller is.
	PurposeWhoAmI Purpose = "whoami"
)

// The names of labels of several metrics.
const (
	LabelResource       = "resource"
	LabelVersion        = "version"
	LabelRepresentation = "representation"
	LabelVerb           = "verb"
	LabelSemantics      = "semantics"
	LabelDecision       = "decision"
	LabelReason         = "reason"
	LabelCode           = "code"
)

// metrics has the counters and histograms of callers' requests, and of requests to the API server. Some of these come from
// feeds: a feed keeps one resource current in memory. The gauges of state are in proxy/admin.
type metrics struct {
	// Updated by Record.end, for a caller's request:
	requests       *prometheus.CounterVec
	requestSeconds *prometheus.HistogramVec
	sentBytes      *prometheus.CounterVec
	savedBytes     *prometheus.CounterVec

	proofSeconds      *prometheus.HistogramVec // updated by StartProof
	upstreamRequests  *prometheus.CounterVec   // updated by Record.end, InstrumentSend and FeedTransport
	reviewSeconds     *prometheus.HistogramVec // updated by InstrumentSend
	feedRequests      *prometheus.CounterVec   // updated by FeedTransport
	feedReceivedBytes *prometheus.CounterVec   // updated by FeedTransport's feedBody
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	// The buckets reach from the fastest answer, a page from memory (about 50 µs), to the slowest, a large list from
	// kube-apiserver (many seconds).
	seconds := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
		}}, labels)
	}
	return &metrics{
		requests: counter("listproxy_requests_total", "Requests that have ended.",
			LabelResource, LabelVerb, LabelSemantics, LabelDecision, LabelReason, LabelCode),
		requestSeconds: seconds("listproxy_request_duration_seconds",
			"How long requests took until their end, without watches, logs, execs and the like.",
			LabelResource, LabelSemantics, LabelDecision),
		sentBytes: counter("listproxy_response_body_bytes_total", "Bytes of answers, as sent: after compression, before TLS.",
			LabelResource, LabelDecision),
		savedBytes: counter("listproxy_saved_bytes_total",
			"Bytes that the API server did not have to encode, before compression.", LabelResource),
		proofSeconds: seconds("listproxy_proof_duration_seconds", "How long lists of the newest state waited for the proof that "+
			"memory has it, by result: proven, the reason why they were forwarded, or gone (the client had left).", "result"),
		upstreamRequests: counter("listproxy_upstream_requests_total", "Requests to the API server: forwarded ones, reviews of "+
			"callers' rights, requests that ask who a caller is (whoami), and those of feeds.", "purpose", LabelCode),
		reviewSeconds: seconds("listproxy_review_duration_seconds",
			"How long the API server took to begin its answer to a review.", LabelCode),
		feedRequests: counter("listproxy_feed_requests_total", "Requests of feeds to the API server, by what they are for: list; "+
			"load, a streaming list; watch; probe, for its current revision; progress, a short watch beside the feed's own, which "+
			"reaches that revision sooner; learn, how it writes watches, and which fields it knows.",
			LabelResource, LabelVersion, LabelRepresentation, "request", LabelCode),
		feedReceivedBytes: counter("listproxy_feed_received_bytes_total", "Bytes received by feeds, after decompression.",
			LabelResource, LabelVersion, LabelRepresentation),
	}
}

// requestLabels has the label values of one request. The number of values of each label is bounded, whatever callers send.
type requestLabels struct {
	resource  string
	verb      string
	semantics policy.Semantics
	decision  string
	reason    string
	code      string
}

// count counts a request that has ended. sent is the number of bytes of the response's body. saved is the number of bytes
// that the API server did not have to encode.
func (m *metrics) count(l *requestLabels, sent int64, saved int) {
	decision := OrNone(l.decision)
	m.requests.WithLabelValues(l.resource, l.verb, OrNone(string(l.semantics)), decision, OrNone(l.reason), l.code).Inc()
	m.sentBytes.WithLabelValues(l.resource, decision).Add(float64(sent))
	switch l.decision {
	case DecisionServe:
		m.savedBytes.WithLabelValues(l.resource).Add(float64(saved))
	case DecisionForward:
		m.upstreamRequests.WithLabelValues(string(purposeForward), l.code).Inc()
	}
}

// observeDuration records the duration of a request that has ended.
func (m *metrics) observeDuration(l *requestLabels, took time.Duration) {
	m.requestSeconds.WithLabelValues(l.resource, OrNone(string(l.semantics)), OrNone(l.decision)).Observe(took.Seconds())
}

// countUpstream counts a request to the API server. code is the status, or 0 if there was no response.
func (m *metrics) countUpstream(purpose Purpose, code int) {
	m.upstreamRequests.WithLabelValues(string(purpose), codeLabel(code)).Inc()
}

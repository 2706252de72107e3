package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/telemetry"
)

// Observer tells what becomes of requests: in metrics, and where traces are wanted, in a span for
// each. It holds no request up, and nothing of it depends on what a caller makes up: labels and names
// of spans have few values. No credential, no caller's name, no object's name, no selector and no
// other query is in either. For the status page it remembers, bounded, what the programs call themselves
// whose lists are forwarded ([telemetry.Callers]).
//
// A nil Observer observes nothing. It is safe for concurrent use.
type Observer struct {
	tracer   trace.Tracer // nil: nothing of a trace is made or changed
	requests *requestMetrics
	upstream *upstreamMetrics
	feeds    *feedMetrics
	served   servedResources
	trails   feedTrails
	callers  telemetry.Callers
	// streaming are streaming lists that were forwarded.
	streaming streamingLists
}

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context).
// Baggage passes as it came: it is the caller's.
var propagator propagation.TraceContext

// NewObserver returns an Observer. A nil traces means that no traces are wanted: then a caller's
// traceparent passes untouched.
func NewObserver(traces trace.TracerProvider, meters metric.MeterProvider) (*Observer, error) {
	meter := meters.Meter(instrumentation)
	upstream, err := newUpstreamMetrics(meter)
	if err != nil {
		return nil, err
	}
	requests, err := newRequestMetrics(meter, upstream)
	if err != nil {
		return nil, err
	}
	feeds, err := newFeedMetrics(meter)
	if err != nil {
		return nil, err
	}
	o := &Observer{requests: requests, upstream: upstream, feeds: feeds}
	if traces != nil {
		o.tracer = traces.Tracer(instrumentation)
	}
	return o, nil
}

// knownFunc says, without asking anyone, what is known of a resource that the upstream has
// ([Catalog.Known]).
type knownFunc func(group, version, resource string) (Entry, bool)

// observation is one request, as it is seen. It is its ResponseWriter, too, and belongs to the
// request's goroutine.
type observation struct {
	http.ResponseWriter
	observer *Observer // nil: nothing is observed
	// request is what the handler goes on with: its context has the span, if there is one.
	request *http.Request
	span    trace.Span // nil unless it records
	// unsampled is the context of a span that does not record.
	unsampled trace.SpanContext

	begun  time.Time
	labels requestLabels
	bytes  int64 // sent
	long   bool
	// streams: it is a streaming list, and was counted as one.
	streams bool
	whole   bool // the handler has returned in order

	list           policy.Request
	representation policy.Representation
	revision       uint64
	known          knownFunc
	items          int
	size           int // of a list from memory, before compression

	cacheStatus string // for the log; empty until it was decided
	// unreviewed is memory's reason to forward a list that was not reviewed ([reasonTold]); else empty.
	unreviewed policy.Reason
}

// begin begins to observe a request. The observation's end must be deferred.
func (o *Observer) begin(w http.ResponseWriter, r *http.Request) *observation {
	s := &observation{ResponseWriter: w, observer: o, request: r, begun: time.Now()}
	if o == nil {
		return s
	}
	s.labels.resource = otherLabel
	return s
}

// WriteHeader implements http.ResponseWriter.
func (s *observation) WriteHeader(status int) {
	if final := status >= http.StatusOK || status == http.StatusSwitchingProtocols; final && s.labels.code == 0 {
		s.labels.code = status
		if s.unreviewed != "" {
			s.tellReason(status)
		}
		s.countCaller()
	}
	s.ResponseWriter.WriteHeader(status)
}

// Hijack implements [http.Hijacker], with which a connection that was upgraded is taken over: the 101
// is not written with WriteHeader.
func (s *observation) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil && s.labels.code == 0 {
		s.labels.code = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Write implements http.ResponseWriter.
func (s *observation) Write(p []byte) (int, error) {
	if s.labels.code == 0 {
		s.labels.code = http.StatusOK
		s.countCaller()
	}
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (s *observation) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// refused notes that listproxy says no to the request, whatever was decided before.
func (s *observation) refused(reason string) {
	s.labels.decision, s.labels.reason, s.labels.semantics = decisionRefuse, reason, ""
	s.cacheStatus = ""
}

// decided notes what was found out about a request. With a reason it is forwarded.
func (s *observation) decided(list policy.Request, a answer, reason policy.Reason, known knownFunc) {
	s.representation = a.representation
	if reason == "" {
		s.revision = a.snapshot.Revision // and not the snapshot, which holds a whole state
	}
	if s.observer == nil {
		return
	}
	s.list, s.known = list, known
	s.labels.decision, s.labels.reason = decisionServe, string(reason)
	s.labels.semantics = a.semantics
	if reason != "" {
		s.labels.decision = decisionForward
	}
}

// serving notes what is about to be written from memory.
func (s *observation) serving(b *body) { s.items, s.size = len(b.objects), b.size }

// end counts the request, and ends its span. A handler that broke off has not set whole.
func (s *observation) end() {
	if s.observer == nil {
		return
	}
	if s.whole && s.labels.code == 0 {
		s.labels.code = http.StatusOK // as net/http says for a handler that wrote nothing
	}
	ctx := context.Background()
	if s.span != nil {
		ctx = s.request.Context() // for exemplars
	}
	now := time.Now()
	s.labels.resource = s.resource(now)
	if s.streams {
		s.observer.streaming.ended.Add(1)
	}
	s.observer.requests.count(ctx, s.labels, now.Sub(s.begun), s.long, s.bytes, int64(s.size))
	if s.span != nil {
		s.endSpan()
	}
}

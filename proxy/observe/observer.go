package observe

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Observer tells what becomes of requests: in metrics, and where traces are wanted, in a span for
// each. It holds no request up, and nothing of it depends on what a caller makes up: labels and
// names of spans have few values. No credential, no caller's name, no object's name, no selector
// and no other query is in either.
//
// A nil Observer observes nothing. It is safe for concurrent use.
type Observer struct {
	tracer   trace.Tracer // nil: nothing of a trace is made or changed
	requests *requestMetrics
	upstream *upstreamMetrics
	feeds    *feedMetrics
	newest   *newestMetrics
	served   servedResources
	trails   feedTrails

	// Serves says, without asking anyone, whether the upstream is known to have a resource. It is
	// set before the first request; nil knows none.
	Serves func(group, version, resource string) bool
}

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context).
// Baggage passes as it came: it is the caller's.
var propagator propagation.TraceContext

// New returns an Observer. A nil traces means that no traces are wanted: then a caller's
// traceparent passes untouched.
func New(traces trace.TracerProvider, meters metric.MeterProvider) (*Observer, error) {
	meter := meters.Meter(Instrumentation)
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
	newest, err := newNewestMetrics(meter)
	if err != nil {
		return nil, err
	}
	o := &Observer{requests: requests, upstream: upstream, feeds: feeds, newest: newest}
	if traces != nil {
		o.tracer = traces.Tracer(Instrumentation)
	}
	return o, nil
}

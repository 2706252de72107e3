package observe

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/policy/reason"
)

// instrumentation is the name of the scope of all spans.
const instrumentation = "github.com/listproxy/listproxy/proxy"

// Observer tells what becomes of requests: in metrics, and where traces are wanted, in a span for
// each. It holds no request up, and nothing of it depends on what a caller makes up: labels and
// names of spans have few values. No credential, no caller's name, no object's name, no selector
// and no other query is in either.
//
// A nil Observer observes nothing. It is safe for concurrent use.
type Observer struct {
	tracer  trace.Tracer // nil: nothing of a trace is made or changed
	metrics *metrics
	served  servedResources
	trails  feedTrails

	// Serves says, without asking anyone, whether the upstream is known to have a resource. It is
	// set before the first request; nil knows none.
	Serves func(group, version, resource string) bool
}

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context).
// Baggage passes as it came: it is the caller's.
var propagator propagation.TraceContext

// New returns an Observer that counts in registry, which has none of its metrics yet. A nil traces
// means that no traces are wanted: then a caller's traceparent passes untouched.
func New(traces trace.TracerProvider, registry prometheus.Registerer) *Observer {
	o := &Observer{metrics: newMetrics(registry)}
	if traces != nil {
		o.tracer = traces.Tracer(instrumentation)
	}
	return o
}

// Proving begins the wait of a list of the newest state for the proof that memory has it; ctx is the
// request's. The function that it returns must be called when the wait is over, with the reason why
// there is no proof, or None. It returns the result.
func (o *Observer) Proving(ctx context.Context) (over func(why reason.Reason) string) {
	if o == nil {
		return func(why reason.Reason) string { return string(why) }
	}
	begun := time.Now()
	return func(why reason.Reason) string {
		result := string(why)
		switch {
		case why == reason.None:
			result = proofProven
		case ctx.Err() != nil:
			result = proofGone
		}
		o.metrics.proof.WithLabelValues(result).Observe(time.Since(begun).Seconds())
		return result
	}
}

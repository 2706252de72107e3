package observe

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/telemetry"
)

// Observer tells what becomes of requests: in metrics, and where traces are wanted, in a span for
// each. It holds no request up, and nothing of it depends on what a caller makes up: labels and
// names of spans have few values. No credential, no caller's name, no object's name, no selector
// and no other query is in either. It is safe for concurrent use.
type Observer struct {
	metrics *metrics
	spans   *spans // nil: nothing of a trace is made or changed
	served  servedResources

	// Serves says, without asking anyone, whether the upstream is known to have a resource. It is
	// set before the first request; nil knows none.
	Serves func(group, version, resource string) bool
}

// New returns an Observer that counts in registry, which has none of its metrics yet. A nil traces
// means that no traces are wanted: then a caller's traceparent passes untouched.
func New(traces trace.TracerProvider, registry prometheus.Registerer) *Observer {
	o := &Observer{metrics: newMetrics(registry)}
	if traces != nil {
		o.spans = &spans{tracer: traces.Tracer(tracerName)}
	}
	return o
}

// Observe returns next, observed: each request has a [Record] and a span, is counted at its end, and
// has its line in the access log if log wants one.
func (o *Observer) Observe(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := o.begin(w, r)
		if log.Enabled(r.Context(), telemetry.LevelAccess) {
			defer record.log(log)
		}
		defer record.end()                                    // also of an answer that is broken off by a panic
		if o.spans != nil && r.Method != http.MethodConnect { // the requests in a tunnel have spans
			record.request = o.spans.begin(record.request)
		}
		next.ServeHTTP(&record.answer, record.request)
		record.returned = true
	})
}

// Proving begins the wait of a list of the newest state for the proof that memory has it; ctx is the
// request's. The function that it returns must be called when the wait is over, with the reason why
// there is no proof, or None. It returns the result.
func (o *Observer) Proving(ctx context.Context) (over func(why reason.Reason) string) {
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

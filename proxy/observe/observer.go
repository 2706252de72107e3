package observe

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/telemetry"
)

// Observer reports requests in metrics, in spans and in the access log. Labels and the names of spans have few values,
// whatever callers send. They have no credential, no name of a caller or object, and nothing of a query. It is
// safe for concurrent use.
type Observer struct {
	metrics *metrics
	spans   *spans // nil: no spans are made
	served  servedResources

	// Serves reports, without I/O, whether the upstream is known to serve a resource. It is set before the first
	// request; nil stands for no resource.
	Serves func(group, version, resource string) bool
}

// New returns an Observer with metrics in registry. If traces is nil no spans are made, and a caller's traceparent is
// forwarded unchanged.
func New(traces *sdktrace.TracerProvider, registry prometheus.Registerer) *Observer {
	o := &Observer{metrics: newMetrics(registry)}
	if traces != nil {
		o.spans = &spans{tracer: traces.Tracer(tracerName)}
	}
	return o
}

// Observe returns a handler that gives each request of next a [Record] and a span, counts it at its end, and writes its
// line of the access log, if that is enabled.
func (o *Observer) Observe(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := o.begin(w, r)
		if log.Enabled(r.Context(), telemetry.LevelAccess) {
			defer record.log(log)
		}
		defer record.end()                                    // also after a panic, which breaks the answer off
		if o.spans != nil && r.Method != http.MethodConnect { // the requests in a tunnel have spans of their own
			record.request = o.spans.begin(record.request)
		}
		next.ServeHTTP(&record.answer, record.request)
		record.returned = true // without a panic
	})
}

// MeasureProof measures how long a request waits for the proof of the newest state; ctx is the request's. over must be
// called when the wait is over, with the reason why there is no proof, or [reason.None]. It returns the result for the
// span.
func (o *Observer) MeasureProof(ctx context.Context) (over func(why reason.Reason) string) {
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

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
// whatever callers send. Neither has a credential, the name of a caller or object, or any part of a query. An Observer
// is safe for concurrent use.
type Observer struct {
	metrics *metrics
	spans   *spans // nil: no spans are made
	served  servedResources

	// Serves reports, without I/O, whether the upstream is known to serve a resource. It is set before the first
	// request, or stays nil, which means no resource.
	Serves func(group, version, resource string) bool
}

// New returns an Observer that registers its metrics with registry. If traces is nil, no spans are made, and a caller's
// traceparent is forwarded unchanged.
func New(traces *sdktrace.TracerProvider, registry prometheus.Registerer) *Observer {
	o := &Observer{metrics: newMetrics(registry)}
	if traces != nil {
		o.spans = &spans{tracer: traces.Tracer(tracerName)}
	}
	return o
}

// Observe returns a handler that calls next with a [Record] and a span in the request's context. When next has returned,
// the handler counts the request, and writes a line of the access log if log has that level.
func (o *Observer) Observe(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := o.begin(w, r)
		if log.Enabled(r.Context(), telemetry.LevelAccess) {
			defer record.log(log)
		}
		defer record.end()                                    // also after a panic, by which next breaks an answer off
		if o.spans != nil && r.Method != http.MethodConnect { // each request in a tunnel has a span, the tunnel has none
			record.request = o.spans.begin(record.request)
		}
		next.ServeHTTP(&record.response, record.request)
		record.returned = true
	})
}

// MeasureProof measures how long the request of ctx waits for the proof of the newest state. The caller must call end
// when the wait ends, with the reason why there is no proof, or [reason.None]. end returns the result for [ProofResult].
func (o *Observer) MeasureProof(ctx context.Context) (end func(why reason.Reason) string) {
	start := time.Now()
	return func(why reason.Reason) string {
		result := string(why)
		switch {
		case why == reason.None:
			result = proofProven
		case ctx.Err() != nil:
			result = proofGone
		}
		o.metrics.proof.WithLabelValues(result).Observe(time.Since(start).Seconds())
		return result
	}
}

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
// whatever callers send, and hold no credential, no name of a caller or object, and no part of a query. An Observer is safe
// for concurrent use.
type Observer struct {
	metrics *metrics
	spans   *spans // nil if no spans are made

	// IsServed reports, without I/O, whether the upstream is known to serve a resource. It must be set before the first
	// request. Nil means that no resource is known.
	IsServed func(group, version, resource string) bool
	// served has the resources that IsServed or an answer of the upstream has confirmed.
	served servedResources
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
// the handler counts the request, and writes a line of the access log if log is enabled for [telemetry.LevelAccess].
func (o *Observer) Observe(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := &Record{observer: o, receivedAt: time.Now(), response: CountingWriter{ResponseWriter: w}}
		record.request = r.WithContext(context.WithValue(r.Context(), recordKey{}, record))
		defer func() { // runs after a panic, too: http.ErrAbortHandler is how next breaks an answer off
			record.end()
			if log.Enabled(r.Context(), telemetry.LevelAccess) {
				record.writeAccessLog(log)
			}
		}()
		if o.spans != nil && r.Method != http.MethodConnect { // each request in a tunnel has a span, the tunnel has none
			record.request = o.spans.begin(record.request)
		}
		next.ServeHTTP(&record.response, record.request)
		record.handlerReturned = true
	})
}

// StartProof measures how long a list or streaming list of the newest state waits for a proof: before it is answered from
// memory, listproxy must prove that memory has this state. StartProof is called before the wait, and starts a span. It returns
// the context of the wait. After the wait, the caller must call end with [reason.None] if there is a proof, or the reason why
// there is none.
func (o *Observer) StartProof(ctx context.Context) (_ context.Context, end func(why reason.Reason)) {
	start := time.Now()
	ctx, span := StartStep(ctx, spanProof)
	return ctx, func(why reason.Reason) {
		result := string(why)
		switch {
		case why == reason.None:
			result = "proven"
		case ctx.Err() != nil:
			result = "gone" // the caller has left
		}
		o.metrics.proofSeconds.WithLabelValues(result).Observe(time.Since(start).Seconds())
		span.SetAttributes(attrProofResult.String(result))
		span.End()
	}
}

package observe

import (
	"context"
	"net/http"
	"time"
)

// InstrumentSend returns send with metrics and spans. send sends a request that asks the API server about a caller. Requests
// are counted by purpose; the duration is measured for reviews only. The span is a child of the span in ctx, and ends when
// the answer begins.
func InstrumentSend[Caller any](
	o *Observer, purpose Purpose, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, caller Caller, r *http.Request) (*http.Response, error) {
		start := time.Now()
		next := roundTripper(func(traced *http.Request) (*http.Response, error) { return send(traced.Context(), caller, traced) })
		res, endSpan, err := o.spans.send(r.Method, next, r.WithContext(ctx)) // named as OpenTelemetry names client spans
		endSpan()
		code := statusOf(res, err)
		o.metrics.countUpstream(purpose, code)
		if purpose == PurposeReview {
			o.metrics.reviewSeconds.WithLabelValues(codeLabel(code)).Observe(time.Since(start).Seconds())
		}
		return res, err
	}
}

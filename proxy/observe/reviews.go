package observe

import (
	"context"
	"net/http"
	"time"
)

// Instrument returns send with metrics and spans. send sends a request that asks the API server about a caller. The
// metrics have the purpose as label. The span is a child of the span in ctx, and ends when the answer begins.
func Instrument[Caller any](
	o *Observer, purpose Purpose, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, caller Caller, r *http.Request) (*http.Response, error) {
		start := time.Now()
		next := roundTripper(func(r *http.Request) (*http.Response, error) { return send(r.Context(), caller, r) })
		res, endSpan, err := o.spans.send(r.Method, next, r.WithContext(ctx))
		endSpan()
		code := statusOf(res, err)
		o.metrics.countUpstream(purpose, code)
		if purpose == PurposeReview {
			o.metrics.reviews.WithLabelValues(codeLabel(code)).Observe(time.Since(start).Seconds())
		}
		return res, err
	}
}

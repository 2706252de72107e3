package observe

import (
	"context"
	"net/http"
	"time"
)

// Send sends a request to the API server on behalf of a caller, like auth.SendAs, where Caller is auth.Identity. Here Caller
// is a type parameter, so that this package does not depend on package auth.
type Send[Caller any] = func(context.Context, Caller, *http.Request) (*http.Response, error)

// InstrumentSend returns send with metrics and spans. send is for requests that ask the API server about a caller. They are
// counted by purpose. Only reviews are timed, since nearly all requests wait for one. The span is a child of the span in
// ctx, and ends when the answer begins.
func InstrumentSend[Caller any](o *Observer, purpose Purpose, send Send[Caller]) Send[Caller] {
	return func(ctx context.Context, caller Caller, r *http.Request) (*http.Response, error) {
		start := time.Now()
		next := roundTripper(func(traced *http.Request) (*http.Response, error) { return send(traced.Context(), caller, traced) })
		spanName := r.Method // as OpenTelemetry's semantic conventions name the span of an HTTP client
		res, endSpan, err := o.spans.send(spanName, next, r.WithContext(ctx))
		endSpan()
		code := statusOf(res, err)
		o.metrics.countUpstream(purpose, code)
		if purpose == PurposeReview {
			o.metrics.reviewSeconds.WithLabelValues(codeLabel(code)).Observe(time.Since(start).Seconds())
		}
		return res, err
	}
}

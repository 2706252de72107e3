package observe

import (
	"context"
	"net/http"
	"time"
)

// Instrument returns a function that sends questions about callers through send, counts them by their purpose, and gives
// each a span below that of the first request that waits for the answer.
func Instrument[Caller any](
	o *Observer, purpose Purpose, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, caller Caller, r *http.Request) (*http.Response, error) {
		begun, code := time.Now(), 0
		via := sender(func(r *http.Request) (*http.Response, error) { return send(r.Context(), caller, r) })
		res, end, err := o.spans.send(r.Method, via, r.WithContext(ctx))
		end()
		if err == nil {
			code = res.StatusCode
		}
		o.metrics.countUpstream(purpose, code)
		if purpose == PurposeReview {
			o.metrics.reviews.WithLabelValues(codeLabel(code)).Observe(time.Since(begun).Seconds())
		}
		return res, err
	}
}

package observe

import (
	"context"
	"net/http"
	"time"
)

// Asking returns send, observed: it asks the API server for that purpose about a caller. Each question
// is counted, and has a span below that of the first request that asked for it.
func Asking[Caller any](
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
		o.metrics.asked(purpose, code)
		if purpose == PurposeReview {
			o.metrics.reviews.WithLabelValues(codeLabel(code)).Observe(time.Since(begun).Seconds())
		}
		return res, err
	}
}

// sender is a function that is an [http.RoundTripper].
type sender func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

package observe

import (
	"context"
	"net/http"
	"time"
)

// Reviews returns send, observed: it sends reviews of what a caller may do. Each is counted, and
// has a span below that of the first request that asked for it.
func Reviews[Caller any](
	o *Observer, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	return observed(o, send, o.metrics.reviewed) //nolint:bodyclose // a function is returned, and no response
}

// WhoAmI is Reviews for questions who a caller is.
func WhoAmI[Caller any](
	o *Observer, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	count := func(_ time.Duration, code int) { o.metrics.asked(purposeWhoAmI, code) }
	return observed(o, send, count) //nolint:bodyclose // a function is returned, and no response
}

func observed[Caller any](
	o *Observer, send func(context.Context, Caller, *http.Request) (*http.Response, error), count func(took time.Duration, code int),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, caller Caller, r *http.Request) (*http.Response, error) {
		begun, code := time.Now(), 0
		via := sender(func(r *http.Request) (*http.Response, error) { return send(r.Context(), caller, r) })
		res, end, err := o.spans.send(r.Method, via, r.WithContext(ctx))
		end()
		if err == nil {
			code = res.StatusCode
		}
		count(time.Since(begun), code)
		return res, err
	}
}

// sender is a function that is an [http.RoundTripper].
type sender func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

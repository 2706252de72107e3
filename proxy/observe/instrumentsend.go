package observe

import (
	"context"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/proxy/auth"
)

// InstrumentSend adds metrics and spans to send, which asks the API server who a caller is, or what the caller may do (a
// review). Requests are counted by purpose. Only reviews are timed, since callers' requests wait for them. The span
// of a request is a child of the span in the call's context. It ends when the answer begins.
func (o *Observer) InstrumentSend(purpose Purpose, send auth.SendAs) auth.SendAs {
	return func(ctx context.Context, id auth.Identity, r *http.Request) (*http.Response, error) {
		start := time.Now()
		transport := roundTripper(func(r *http.Request) (*http.Response, error) { return send(r.Context(), id, r) })
		spanName := r.Method // as OpenTelemetry's semantic conventions name the span of an HTTP client
		res, endSpan, err := o.spans.sendInSpan(spanName, transport, r.WithContext(ctx))
		endSpan()
		code := statusOf(res, err)
		o.metrics.countUpstream(purpose, code)
		if purpose == PurposeReview {
			o.metrics.reviewSeconds.WithLabelValues(codeLabel(code)).Observe(time.Since(start).Seconds())
		}
		return res, err
	}
}

package observe

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// FeedTransport returns a transport that observes the requests of feeds, and sends all requests through next. describe
// returns the purpose of the request with the given context, and the resource, version and representation that the
// request reads. The purpose is empty if the request is not a feed's. Each request of a feed has a trace of its own,
// since no caller waits for the answer. Its span lasts until the end of the answer.
func (o *Observer) FeedTransport(
	next http.RoundTripper, describe func(context.Context) (purpose string, collection []string),
) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		purpose, collection := describe(r.Context())
		if purpose == "" {
			return next.RoundTrip(r)
		}
		resource, representation := collection[0], collection[2]
		res, endSpan, err := o.spans.send("feed "+purpose, next, r,
			attrResource.String(resource), attrRepresentation.String(representation))
		code := statusOf(res, err)
		m := o.metrics
		m.feedRequests.WithLabelValues(append(slices.Clip(collection), purpose, codeLabel(code))...).Inc()
		m.countUpstream(purposeFeed, code)
		if err != nil {
			return nil, err
		}
		res.Body = &feedBody{ReadCloser: res.Body, received: m.feedReceived.WithLabelValues(collection...), endSpan: endSpan}
		return res, nil
	})
}

// statusOf returns the status of a response, or 0 if there is none because of err.
func statusOf(res *http.Response, err error) int {
	if err != nil {
		return 0
	}
	return res.StatusCode
}

// feedBody counts the bytes that a feed reads of an answer, and ends the request's span at the end of the answer.
type feedBody struct {
	io.ReadCloser
	received prometheus.Counter
	endSpan  func() // may be called again
}

// Read implements [io.Reader].
func (b *feedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received.Add(float64(n))
	if err != nil {
		b.endSpan()
	}
	return n, err
}

// Close implements [io.Closer].
func (b *feedBody) Close() error {
	b.endSpan()
	return b.ReadCloser.Close()
}

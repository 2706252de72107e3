package observe

import (
	"context"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// FeedTransport returns a transport that sends all requests through next, and observes the requests of feeds. A feed keeps one
// resource current in memory: it lists the resource, and watches it. describe reads two things from a request's context: the
// purpose of the request (task, such as "watch"), and the resource, version and representation that the feed keeps. The task is
// empty if the request is not a feed's.
//
// Each request of a feed has a trace of its own, since no caller waits for the answer. Its span lasts until the end of the
// answer.
func (o *Observer) FeedTransport(
	next http.RoundTripper, describe func(context.Context) (task, resource, version, representation string),
) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		task, resource, version, representation := describe(r.Context())
		if task == "" {
			return next.RoundTrip(r)
		}
		res, endSpan, err := o.spans.sendInSpan("feed "+task, next, r,
			attrResource.String(resource), attrRepresentation.String(representation))
		code := statusOf(res, err)
		m := o.metrics
		m.feedRequests.WithLabelValues(resource, version, representation, task, codeLabel(code)).Inc()
		m.countUpstream(purposeFeed, code)
		if err != nil {
			return nil, err // sendInSpan has ended the span
		}
		received := m.feedReceivedBytes.WithLabelValues(resource, version, representation)
		res.Body = &feedBody{ReadCloser: res.Body, received: received, endSpan: endSpan}
		return res, nil
	})
}

// statusOf returns the status of res, or 0 if the request has failed with err.
func statusOf(res *http.Response, err error) int {
	if err != nil {
		return 0
	}
	return res.StatusCode
}

// feedBody is the body of an answer to a feed. It counts the bytes that the feed reads, and ends the span of the request at
// the end of the answer.
type feedBody struct {
	io.ReadCloser
	received prometheus.Counter
	endSpan  func() // may be called more than once
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

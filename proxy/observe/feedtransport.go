package observe

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// FeedTransport returns a transport that observes the requests of feeds, and sends them through next. describe returns
// the kind of the request with a context, the resource, version and representation that it reads, and whether its answer
// is a stream of events. The kind is empty if the request is not a feed's. Each request has a trace of its own, since
// no caller waits for it. Its span lasts until the end of the answer.
func (o *Observer) FeedTransport(
	next http.RoundTripper, describe func(context.Context) (kind string, collection []string, isStream bool),
) http.RoundTripper {
	return sender(func(r *http.Request) (*http.Response, error) {
		kind, collection, isStream := describe(r.Context())
		if kind == "" {
			return next.RoundTrip(r)
		}
		res, end, err := o.spans.send("feed "+kind, next, r,
			attrResource.String(collection[0]), attrRepresentation.String(collection[2]))
		code := 0
		if err == nil {
			code = res.StatusCode
		}
		m := o.metrics
		m.feedRequests.WithLabelValues(append(slices.Clip(collection), kind, codeLabel(code))...).Inc()
		m.countUpstream(purposeFeed, code)
		if err != nil {
			return nil, err
		}
		body := &feedBody{
			ReadCloser: res.Body, end: end,
			received: m.feedReceived.WithLabelValues(collection...), events: m.feedEvents.WithLabelValues(collection...),
		}
		if isStream && res.StatusCode == http.StatusOK {
			body.framing = kubehttp.FramingOf(res.Header)
		}
		res.Body = body
		return res, nil
	})
}

// feedBody counts what a feed reads of an answer, and ends the request's span at the end of the answer.
type feedBody struct {
	io.ReadCloser
	received, events prometheus.Counter
	framing          kubehttp.EventFraming
	end              func() // of the span
}

// Read implements io.Reader.
func (b *feedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.received.Add(float64(n))
		if events := b.countEvents(p[:n]); events > 0 {
			b.events.Add(float64(events))
		}
	}
	if err != nil {
		b.end()
	}
	return n, err
}

// countEvents returns the number of events that end in p.
func (b *feedBody) countEvents(p []byte) (events int) {
	for len(p) > 0 {
		n, whole := b.framing.Next(p)
		if p = p[n:]; whole {
			events++
		}
	}
	return events
}

// Close implements io.Closer.
func (b *feedBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

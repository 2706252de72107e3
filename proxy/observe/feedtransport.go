package observe

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// feed says which feed it is.
type feed struct {
	resource       schema.GroupResource
	version        string
	representation media.Representation
}

// labels are those of its metrics.
func (f feed) labels(more ...string) []string {
	return append([]string{f.resource.String(), f.version, string(f.representation)}, more...)
}

// FeedTransport observes the requests by which feeds read the upstream at base; next sends them. kindOf
// returns what a request is for, and whether its answer is a stream of events. The kind is empty if the
// request is not a feed's. Each request has a trace of its own, since no caller waits for it. A span lasts
// until the end of the answer: that of a watch for minutes.
func (o *Observer) FeedTransport(
	next http.RoundTripper, base *url.URL, kindOf func(context.Context) (kind string, streams bool),
) http.RoundTripper {
	return &feedTransport{observer: o, next: next, prefix: base.Path, kindOf: kindOf}
}

type feedTransport struct {
	observer *Observer
	next     http.RoundTripper
	prefix   string
	kindOf   func(context.Context) (kind string, streams bool)
}

// RoundTrip implements http.RoundTripper.
func (t *feedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	of, ok := t.feedOf(r)
	kind, streams := t.kindOf(r.Context())
	if !ok || kind == "" {
		return t.next.RoundTrip(r)
	}
	res, end, err := t.observer.spans.send("feed "+kind, t.next, r,
		attrResource.String(of.resource.String()), attrRepresentation.String(string(of.representation)))
	code := 0
	if err == nil {
		code = res.StatusCode
	}
	m := t.observer.metrics
	m.feedRequests.WithLabelValues(of.labels(kind, codeLabel(code))...).Inc()
	m.asked(purposeFeed, code)
	if err != nil {
		return nil, err
	}
	body := &feedBody{
		ReadCloser: res.Body, end: end,
		received: m.feedReceived.WithLabelValues(of.labels()...), events: m.feedEvents.WithLabelValues(of.labels()...),
	}
	if streams && res.StatusCode == http.StatusOK {
		body.framing = kubehttp.FramingOf(res.Header)
	}
	res.Body = body
	return res, nil
}

// feedOf returns which feed a request is of, if it reads a resource.
func (t *feedTransport) feedOf(r *http.Request) (feed, bool) {
	path := strings.TrimPrefix(r.URL.Path, t.prefix)
	info, err := policy.RequestInfo(r.Method, &url.URL{Path: path})
	if err != nil || !info.IsResourceRequest {
		return feed{}, false
	}
	return feed{
		resource: schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, version: info.APIVersion,
		representation: representationOf(r.Header.Get("Accept")),
	}, true
}

// representationOf reads the Accept header of a feed.
func representationOf(accept string) media.Representation {
	protobuf, metadata := strings.Contains(accept, "protobuf"), strings.Contains(accept, "PartialObjectMetadata")
	switch {
	case protobuf && metadata:
		return media.MetadataProtobuf
	case protobuf:
		return media.Protobuf
	case metadata:
		return media.MetadataJSON
	}
	return media.JSON
}

// feedBody counts what a feed reads, and ends its span when it has read it.
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

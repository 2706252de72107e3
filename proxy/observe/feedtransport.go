package observe

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/source"
)

// feedName says which feed it is.
type feedName struct {
	resource       schema.GroupResource
	version        string
	representation media.Representation
}

// labels are those of its metrics.
func (n feedName) labels(more ...string) []string {
	return append([]string{n.resource.String(), n.version, string(n.representation)}, more...)
}

// FeedTransport observes the requests by which feeds read the upstream at base; next sends them.
// Each has a trace of its own, since no caller waits for it, linked with that of the feed's request
// before. A span lasts until the end of the answer: that of a watch for minutes.
func (o *Observer) FeedTransport(next http.RoundTripper, base *url.URL) http.RoundTripper {
	if o == nil {
		return next
	}
	return &feedTransport{observer: o, next: next, prefix: base.Path}
}

type feedTransport struct {
	observer *Observer
	next     http.RoundTripper
	prefix   string
}

// maxTrails bounds them.
const maxTrails = 4000

// feedTrails are the last spans of feeds, with which the next are linked. They are forgotten when
// there are too many. The zero value is ready for use.
type feedTrails struct {
	mu   sync.Mutex
	last map[feedName]trace.SpanContext
}

// begin begins a span of a feed, in a trace of its own.
func (f *feedTrails) begin(
	ctx context.Context, tracer trace.Tracer, of feedName, name string, more ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	options := append([]trace.SpanStartOption{trace.WithNewRoot(), trace.WithAttributes(
		attrResource.String(of.resource.String()), attrRepresentation.String(string(of.representation)))}, more...)
	if last := f.last[of]; last.IsSampled() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: last}))
	}
	ctx, span := tracer.Start(ctx, name, options...)
	if _, known := f.last[of]; !known && len(f.last) >= maxTrails || f.last == nil {
		f.last = map[feedName]trace.SpanContext{}
	}
	f.last[of] = span.SpanContext()
	return ctx, span
}

// Reopened makes a span of the time in which a feed had no state, once it has one again
// ([snapshot.Config]). It is linked with that of the feed's last request.
func (o *Observer) Reopened(r snapshot.Resource, gap time.Duration, cause reason.Reason) {
	if o == nil || o.tracer == nil {
		return
	}
	_, span := o.trails.begin(context.Background(), o.tracer, feedNameOf(r), spanGap,
		trace.WithTimestamp(time.Now().Add(-gap)), trace.WithAttributes(attrCause.String(string(cause))))
	span.End()
}

// RoundTrip implements http.RoundTripper.
func (t *feedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	name, ok := t.feed(r)
	if !ok {
		return t.next.RoundTrip(r)
	}
	kind := source.KindOf(r.Context())
	ctx, span := t.span(r.Context(), name, kind)
	if span.SpanContext().IsValid() {
		r = r.Clone(ctx)
		inject(ctx, r.Header)
	}
	res, err := t.next.RoundTrip(r)
	code := 0
	if err == nil {
		code = res.StatusCode
		span.SetAttributes(semconv.HTTPResponseStatusCode(res.StatusCode))
	} else {
		span.SetStatus(codes.Error, "no answer")
		span.End()
	}
	m := t.observer.metrics
	m.feedRequests.WithLabelValues(name.labels(string(kind), codeLabel(code))...).Inc()
	m.asked(purposeFeed, code)
	if err != nil {
		return nil, err
	}
	streams := kind == source.ForLoad || kind == source.ForWatch
	body := &feedBody{
		ReadCloser: res.Body, span: span,
		received: m.feedReceived.WithLabelValues(name.labels()...), events: m.feedEvents.WithLabelValues(name.labels()...),
	}
	if streams && res.StatusCode == http.StatusOK {
		body.framing = kubehttp.FramingOf(res.Header)
	}
	res.Body = body
	return res, nil
}

// feed says which feed a request is of.
func (t *feedTransport) feed(r *http.Request) (feedName, bool) {
	path := strings.TrimPrefix(r.URL.Path, t.prefix)
	info, err := policy.RequestInfo(r.Method, &url.URL{Path: path})
	if err != nil || !info.IsResourceRequest || source.KindOf(r.Context()) == "" {
		return feedName{}, false
	}
	return feedName{
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

// span begins the span of a feed's request.
func (t *feedTransport) span(ctx context.Context, name feedName, kind source.Kind) (context.Context, trace.Span) {
	if t.observer.tracer == nil {
		return ctx, noop.Span{}
	}
	return t.observer.trails.begin(ctx, t.observer.tracer, name, "feed "+string(kind),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(semconv.HTTPRequestMethodKey.String(http.MethodGet)))
}

// feedBody counts what a feed reads, and ends its span when it has read it.
type feedBody struct {
	io.ReadCloser
	received, events prometheus.Counter
	framing          kubehttp.EventFraming
	span             trace.Span
	once             sync.Once
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

// countEvents returns how many events end in p.
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

func (b *feedBody) end() {
	b.once.Do(func() {
		b.span.End()
	})
}

// feedNameOf names the feed of a collection.
func feedNameOf(r snapshot.Resource) feedName {
	return feedName{resource: r.GroupResource(), version: r.Version, representation: r.Representation}
}

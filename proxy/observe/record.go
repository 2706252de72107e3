package observe

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Record is what is known of one request: what was decided about it, and what was sent.
// [Observer.Observe] puts it into the request's context and counts it at the end. It belongs to the
// request's goroutine.
type Record struct {
	observer *Observer // nil: nobody wants to know
	answer   CountingWriter
	request  *http.Request // its context has the record and the span

	begun    time.Time
	labels   requestLabels // without the code
	returned bool          // the handler has, without a panic
	ignored  bool

	list   *policy.Request
	served Served
}

// Served is an answer from memory.
type Served struct {
	Representation media.Representation
	Revision       uint64
	Items          int
	Bytes          int // before compression
}

type recordKey struct{}

// recordContext is a context with a record, in one allocation.
type recordContext struct {
	context.Context
	record Record
}

// Value implements [context.Context].
func (c *recordContext) Value(key any) any {
	if key == (recordKey{}) {
		return &c.record
	}
	return c.Context.Value(key)
}

// RecordOf returns the record of the request that ctx belongs to; if it has none, one that nobody
// reads.
func RecordOf(ctx context.Context) *Record {
	if record, ok := ctx.Value(recordKey{}).(*Record); ok {
		return record
	}
	return &Record{begun: time.Now()}
}

// begin begins a record. It must be ended.
func (o *Observer) begin(w http.ResponseWriter, r *http.Request) *Record {
	ctx := &recordContext{r.Context(), Record{observer: o, begun: time.Now(), answer: CountingWriter{ResponseWriter: w}}}
	ctx.record.labels.resource = OtherLabel
	ctx.record.request = r.WithContext(ctx)
	return &ctx.record
}

// Begun returns the time at which the request came.
func (rec *Record) Begun() time.Time { return rec.begun }

// LongRunning notes whether the request may take as long as its client likes. Its duration is not
// counted then.
func (rec *Record) LongRunning(long bool) { rec.labels.long = long }

// Ignore makes the request one that is neither counted nor logged.
func (rec *Record) Ignore() { rec.ignored = true }

// Refused notes that listproxy says no to the request, whatever was decided before.
func (rec *Record) Refused(reason string) {
	rec.labels.decision, rec.labels.reason, rec.labels.semantics = DecisionRefuse, reason, ""
}

// Decided notes what was found out about a request. With a reason it is forwarded.
func (rec *Record) Decided(list *policy.Request, semantics policy.Semantics, reason reason.Reason) {
	rec.list, rec.served = list, Served{}
	rec.labels.decision, rec.labels.reason, rec.labels.semantics = DecisionServe, string(reason), semantics
	if reason != "" {
		rec.labels.decision = DecisionForward
	}
}

// Serving notes what is about to be written from memory.
func (rec *Record) Serving(answer Served) { rec.served = answer }

// Forwarding returns what sends the request to the upstream: via, in a span. end is to be called when the
// answer is over.
func (rec *Record) Forwarding(via http.RoundTripper) (_ http.RoundTripper, end func()) {
	if rec.observer == nil || rec.observer.spans == nil {
		return via, func() {}
	}
	f := &forwarding{spans: rec.observer.spans, via: via}
	return f, func() {
		if f.end != nil {
			f.end()
		}
	}
}

// forwarding is an [http.RoundTripper] for one request.
type forwarding struct {
	spans *spans
	via   http.RoundTripper
	end   func()
}

func (f *forwarding) RoundTrip(r *http.Request) (res *http.Response, err error) {
	if f.end != nil { // it is sent again
		f.end()
	}
	res, f.end, err = f.spans.send(SpanForward, f.via, r)
	return res, err
}

// Answered notes that the upstream has begun to answer a request that was forwarded. The writer
// does not hear of the 101 of a connection that is taken over.
func (rec *Record) Answered(code int) {
	if code == http.StatusSwitchingProtocols {
		rec.answer.Code = code
	}
}

// Sent notes an answer that was not written with the ResponseWriter, but on the connection.
func (rec *Record) Sent(code int, bytes int64) { rec.answer.Code, rec.answer.Bytes = code, bytes }

// end counts the request, and says in its span what became of it.
func (rec *Record) end() {
	span := trace.SpanFromContext(rec.request.Context())
	defer span.End()
	if rec.ignored {
		return
	}
	if rec.returned && rec.answer.Code == 0 {
		rec.answer.Code = http.StatusOK // as net/http says for a handler that wrote nothing
	}
	rec.labels.resource, rec.labels.verb, rec.labels.code = rec.resource(rec.answer.Code), verbOf(rec.request), codeLabel(rec.answer.Code)
	rec.observer.metrics.count(&rec.labels, time.Since(rec.begun), rec.answer.Bytes, rec.served)
	if span.IsRecording() {
		rec.describe(span)
	}
}

// describe says in the request's span what became of it.
func (rec *Record) describe(span trace.Span) {
	_, name := methodName(rec.request.Method)
	attributes := []attribute.KeyValue{attrDecision.String(rec.labels.decision), attrBytes.Int64(rec.answer.Bytes)}
	if rec.answer.Code != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(rec.answer.Code))
	}
	add := func(key attribute.Key, value string) {
		if value != "" && value != OtherLabel {
			attributes = append(attributes, key.String(value))
		}
	}
	add(attrReason, rec.labels.reason)
	add(attrSemantics, string(rec.labels.semantics))
	add(attrResource, rec.labels.resource)
	if rec.labels.decision == DecisionServe {
		add(attrRepresentation, string(rec.served.Representation))
		attributes = append(attributes,
			attrRevision.Int64(int64(rec.served.Revision)), // #nosec G115 -- etcd's revisions are int64
			attrItems.Int(rec.served.Items))
	}
	if rec.labels.resource != OtherLabel {
		name += " " + rec.labels.resource
	}
	span.SetName(name)
	span.SetAttributes(attributes...)
	switch {
	case !rec.returned:
		span.SetStatus(codes.Error, "the answer was broken off")
	case rec.answer.Code >= http.StatusInternalServerError:
		span.SetStatus(codes.Error, "")
	}
}

// CountingWriter counts what is written.
type CountingWriter struct {
	http.ResponseWriter
	Code  int // of the final answer; 0 until it has begun
	Bytes int64
}

// WriteHeader implements [http.ResponseWriter].
func (w *CountingWriter) WriteHeader(code int) {
	final := code >= http.StatusOK || code == http.StatusSwitchingProtocols
	if final && w.Code == 0 {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *CountingWriter) Write(p []byte) (int, error) {
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.Bytes += int64(n)
	return n, err
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *CountingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

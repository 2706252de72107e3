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

// Record is the record of one request: the decision about it, and the answer. [Observer.Observe] puts it into the
// request's context, and counts it at the end. It belongs to the request's goroutine.
type Record struct {
	observer *Observer // nil: the record is not used
	answer   CountingWriter
	request  *http.Request // its context has the record and the span

	begun    time.Time
	labels   requestLabels // without the code
	returned bool          // whether the handler has returned without a panic
	ignored  bool

	list   *policy.Request
	served MemoryAnswer
}

// MemoryAnswer describes an answer from memory.
type MemoryAnswer struct {
	Representation media.Representation
	Revision       uint64
	Items          int
	Bytes          int // before compression
}

type recordKey struct{}

// RecordOf returns the record of the request that ctx belongs to. If there is none it returns one that is not used.
func RecordOf(ctx context.Context) *Record {
	if record, ok := ctx.Value(recordKey{}).(*Record); ok {
		return record
	}
	return &Record{begun: time.Now()}
}

// begin returns a new record, which must be ended.
func (o *Observer) begin(w http.ResponseWriter, r *http.Request) *Record {
	record := &Record{observer: o, begun: time.Now(), answer: CountingWriter{ResponseWriter: w}}
	record.labels.resource = OtherLabel
	record.request = r.WithContext(context.WithValue(r.Context(), recordKey{}, record))
	return record
}

// ReceivedAt returns the time at which the request came.
func (rec *Record) ReceivedAt() time.Time { return rec.begun }

// SetLongRunning notes whether the request is long-running, so that its duration is not counted.
func (rec *Record) SetLongRunning(long bool) { rec.labels.long = long }

// Ignore keeps the request from being counted and logged.
func (rec *Record) Ignore() { rec.ignored = true }

// SetRefused notes that listproxy refuses the request, whatever was decided before.
func (rec *Record) SetRefused(reason string) {
	rec.labels.decision = DecisionRefuse
	rec.labels.reason = reason
	rec.labels.semantics = ""
}

// SetDecision notes the decision about a request: to answer it from memory, or with a reason to forward it.
func (rec *Record) SetDecision(list *policy.Request, semantics policy.Semantics, why reason.Reason) {
	rec.list = list
	rec.served = MemoryAnswer{}
	rec.labels.decision = DecisionServe
	if why != reason.None {
		rec.labels.decision = DecisionForward
	}
	rec.labels.reason = string(why)
	rec.labels.semantics = semantics
}

// SetMemoryAnswer notes the answer from memory that is about to be written.
func (rec *Record) SetMemoryAnswer(answer MemoryAnswer) { rec.served = answer }

// ForwardTransport returns a transport that sends the request through via, in a span. end must be called at the end of the
// answer.
func (rec *Record) ForwardTransport(via http.RoundTripper) (_ http.RoundTripper, end func()) {
	endSpan := func() {}
	if rec.observer == nil {
		return via, endSpan
	}
	return sender(func(r *http.Request) (res *http.Response, err error) {
		endSpan() // r may be sent again
		res, endSpan, err = rec.observer.spans.send(SpanForward, via, r)
		return res, err
	}), func() { endSpan() }
}

// SetUpstreamStatus notes the status of the upstream's answer to a forwarded request. A 101, after which the connection is taken
// over, does not reach the ResponseWriter.
func (rec *Record) SetUpstreamStatus(code int) {
	if code == http.StatusSwitchingProtocols {
		rec.answer.Code = code
	}
}

// SetSent notes an answer that was written on the connection, and not with the ResponseWriter.
func (rec *Record) SetSent(code int, bytes int64) {
	rec.answer.Code = code
	rec.answer.Bytes = bytes
}

// end counts the request, and ends its span.
func (rec *Record) end() {
	span := trace.SpanFromContext(rec.request.Context())
	defer span.End()
	if rec.ignored {
		return
	}
	if rec.returned && rec.answer.Code == 0 {
		rec.answer.Code = http.StatusOK // as net/http sends for a handler that wrote nothing
	}
	rec.labels.resource = rec.resource(rec.answer.Code)
	rec.labels.verb = verbOf(rec.request)
	rec.labels.code = codeLabel(rec.answer.Code)
	rec.observer.metrics.count(&rec.labels, time.Since(rec.begun), rec.answer.Bytes, rec.served)
	if span.IsRecording() {
		rec.describe(span)
	}
}

// describe sets the name, attributes and status of the request's span.
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

// CountingWriter is an [http.ResponseWriter] that notes the status, and counts the bytes of the body.
type CountingWriter struct {
	http.ResponseWriter
	Code  int // of the final answer; 0 until that has begun
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

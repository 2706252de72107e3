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
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Record is what is known of one request: the decision about it, and the answer. [Observer.Observe] puts the record into the
// request's context. At the end of the request, it reports the record in metrics, a span and the access log. Only the request's
// goroutine may use the record.
type Record struct {
	observer *Observer // nil if the record is not reported
	response CountingWriter
	request  *http.Request // its context has the record and the span

	receivedAt      time.Time
	labels          requestLabels // the code, resource and verb are set at the end
	handlerReturned bool          // false if the handler has panicked
	isIgnored       bool          // the request is neither counted nor logged

	asked  *policy.Request // the parsed request; set with the decision to forward it, or to answer it from memory
	memory MemoryAnswer    // zero if the answer is not from memory
}

// MemoryAnswer describes an answer from memory.
type MemoryAnswer struct {
	Representation media.Representation
	Revision       uint64
	Items          int
	Bytes          int // before compression
}

type recordKey struct{}

// RecordOf returns the record in ctx, a request's context. If there is none, it returns a new record, which is not reported.
func RecordOf(ctx context.Context) *Record {
	if record, ok := ctx.Value(recordKey{}).(*Record); ok {
		return record
	}
	return &Record{receivedAt: time.Now()}
}

// ReceivedAt returns the time at which the request came.
func (rec *Record) ReceivedAt() time.Time { return rec.receivedAt }

// Ignore keeps the request from being counted and logged.
func (rec *Record) Ignore() { rec.isIgnored = true }

// SetRefused records that listproxy refuses the request, and why. It replaces an earlier decision.
func (rec *Record) SetRefused(why string) {
	rec.labels.decision = DecisionRefuse
	rec.labels.reason = why
	rec.labels.semantics = ""
}

// SetDecision records the decision about a request: to forward it for the reason why, or to answer it from memory if why
// is [reason.None]. It replaces an earlier decision and its [MemoryAnswer].
func (rec *Record) SetDecision(asked *policy.Request, semantics policy.Semantics, why reason.Reason) {
	rec.asked = asked
	rec.memory = MemoryAnswer{}
	rec.labels.decision = DecisionServe
	if why != reason.None {
		rec.labels.decision = DecisionForward
	}
	rec.labels.reason = string(why)
	rec.labels.semantics = semantics
}

// SetMemoryAnswer records the answer from memory that is about to be written.
func (rec *Record) SetMemoryAnswer(answer MemoryAnswer) { rec.memory = answer }

// SetHijackedAnswer records an answer that is written to the hijacked connection instead of the ResponseWriter.
func (rec *Record) SetHijackedAnswer(code int, bytes int64) {
	rec.response.Code = code
	rec.response.Bytes = bytes
}

// end completes the labels, counts the request, and completes and ends its span.
func (rec *Record) end() {
	span := trace.SpanFromContext(rec.request.Context())
	defer span.End()
	if rec.isIgnored {
		return
	}
	if rec.handlerReturned && rec.response.Code == 0 {
		rec.response.Code = http.StatusOK // as net/http sends for a handler that wrote nothing
	}
	rec.labels.resource = rec.resourceLabel()
	rec.labels.verb = verbLabel(rec.request)
	rec.labels.code = codeLabel(rec.response.Code)
	rec.observer.metrics.count(&rec.labels, rec.response.Bytes, rec.memory.Bytes)
	if !kubehttp.RequestOf(rec.request).LongRunning {
		rec.observer.metrics.observeDuration(&rec.labels, time.Since(rec.receivedAt))
	}
	if span.IsRecording() {
		rec.describeSpan(span)
	}
}

// describeSpan sets the name, attributes and status of the request's span.
func (rec *Record) describeSpan(span trace.Span) {
	attributes := []attribute.KeyValue{attrDecision.String(rec.labels.decision), attrBytes.Int64(rec.response.Bytes)}
	if rec.response.Code != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(rec.response.Code))
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
		add(attrRepresentation, string(rec.memory.Representation))
		attributes = append(attributes,
			attrRevision.Int64(int64(rec.memory.Revision)), // #nosec G115 -- etcd's revisions are int64
			attrItems.Int(rec.memory.Items))
	}
	name := knownMethod(rec.request.Method, otherMethodInName)
	if rec.labels.resource != OtherLabel {
		name += " " + rec.labels.resource
	}
	span.SetName(name)
	span.SetAttributes(attributes...)
	switch {
	case !rec.handlerReturned:
		span.SetStatus(codes.Error, "the answer was broken off")
	case rec.response.Code >= http.StatusInternalServerError:
		span.SetStatus(codes.Error, "")
	}
}

package observe

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

// Record is what is known of one request: what was decided about it, what was sent, its span.
// [Observer.Observe] puts it into the request's context and counts it at the end. It belongs to the
// request's goroutine. A nil Record takes everything and records nothing.
type Record struct {
	observer *Observer // nil: the record is for the access log only
	answer   CountingWriter
	// request is the one that came. Its context has the record, and the span if there is one.
	request *http.Request
	span    trace.Span // nil unless it records
	// unsampled is the context of a span that does not record.
	unsampled trace.SpanContext

	begun   time.Time
	labels  requestLabels // without the code
	long    bool
	whole   bool // the handler has returned in order
	ignored bool
	decided bool

	list   policy.Request
	served Served

	cacheStatus string // for the log; empty until it was decided
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

// RecordOf returns the record of the request that ctx belongs to, or nil.
func RecordOf(ctx context.Context) *Record {
	record, _ := ctx.Value(recordKey{}).(*Record)
	return record
}

// Observe returns next, observed: each request has a [Record], is counted at its end, and has its
// line in the access log if log wants one.
func (o *Observer) Observe(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		logged := log.Enabled(r.Context(), telemetry.LevelAccess)
		if o == nil && !logged {
			next.ServeHTTP(w, r)
			return
		}
		record := o.begin(w, r)
		defer record.end() // also of an answer that is broken off by a panic
		if logged {
			defer record.log(log)
		}
		next.ServeHTTP(&record.answer, record.request)
		record.whole = true
	})
}

// begin begins a record. Its end must be deferred.
func (o *Observer) begin(w http.ResponseWriter, r *http.Request) *Record {
	ctx := &recordContext{r.Context(), Record{observer: o, begun: time.Now(), answer: CountingWriter{ResponseWriter: w}}}
	s := &ctx.record
	s.labels.resource = OtherLabel
	s.request = r.WithContext(ctx)
	return s
}

// Begun returns when the request came.
func (rec *Record) Begun() time.Time {
	if rec == nil {
		return time.Now()
	}
	return rec.begun
}

// LongRunning notes whether the request may take as long as its client likes. Its duration is not
// counted then.
func (rec *Record) LongRunning(long bool) {
	if rec != nil {
		rec.long = long
	}
}

// Ignore makes the request one that is neither counted nor logged.
func (rec *Record) Ignore() {
	if rec != nil {
		rec.ignored = true
	}
}

// Refused notes that listproxy says no to the request, whatever was decided before. h is the header
// of the answer. It loses its Cache-Status: an answer that an intermediary makes by itself should
// have none (RFC 9211, 2).
func (rec *Record) Refused(h http.Header, reason string) {
	h.Del(kubehttp.CacheStatusHeader)
	if rec == nil {
		return
	}
	rec.labels.decision, rec.labels.reason, rec.labels.semantics = DecisionRefuse, reason, ""
	rec.cacheStatus = ""
}

// Decided notes what was found out about a request. With a reason it is forwarded.
func (rec *Record) Decided(list policy.Request, semantics policy.Semantics, reason reason.Reason) {
	if rec == nil {
		return
	}
	rec.decided, rec.list, rec.served = true, list, Served{}
	rec.labels.decision, rec.labels.reason, rec.labels.semantics = DecisionServe, string(reason), semantics
	if reason != "" {
		rec.labels.decision = DecisionForward
	}
}

// Serving notes what is about to be written from memory.
func (rec *Record) Serving(answer Served) {
	if rec != nil {
		rec.served = answer
	}
}

// SetCacheStatus says in h, the header of the answer, and in the access log where the answer comes
// from.
func (rec *Record) SetCacheStatus(h http.Header, value string) {
	h.Set(kubehttp.CacheStatusHeader, value)
	if rec != nil {
		rec.cacheStatus = value
	}
}

// ToldOtherReason notes that Cache-Status tells the caller another reason for a forward than was
// noted, since the caller may not know that one. Metrics and traces get it too, unless it is
// review-failed.
func (rec *Record) ToldOtherReason(why reason.Reason, cacheStatus string) {
	if rec == nil {
		return
	}
	rec.cacheStatus = cacheStatus
	if why != reason.ReviewFailed {
		rec.labels.reason = string(why)
	}
}

// Answered notes that the upstream has begun to answer a request that was forwarded. The writer
// does not hear of the 101 of a connection that is taken over.
func (rec *Record) Answered(code int) {
	if rec != nil && code == http.StatusSwitchingProtocols {
		rec.answer.Code = code
	}
}

// Sent notes an answer that was not written with the ResponseWriter, but on the connection.
func (rec *Record) Sent(code int, bytes int64) {
	if rec != nil {
		rec.answer.Code, rec.answer.Bytes = code, bytes
	}
}

// end counts the request, and ends its span.
func (rec *Record) end() {
	if rec.observer == nil || rec.ignored {
		return
	}
	if rec.whole && rec.answer.Code == 0 {
		rec.answer.Code = http.StatusOK // as net/http says for a handler that wrote nothing
	}
	rec.Trace(rec.request, false) // of a request that was refused before anybody asked who sends it
	rec.labels.resource, rec.labels.verb, rec.labels.code = rec.resource(rec.answer.Code), verbOf(rec.request), rec.answer.Code
	rec.observer.metrics.count(rec.labels, time.Since(rec.begun), rec.long, rec.answer.Bytes, rec.served)
	if rec.span != nil {
		rec.endSpan()
	}
}

// CountingWriter counts what is written. It knows nothing of who wants to know.
type CountingWriter struct {
	http.ResponseWriter
	Code   int // of the final answer; 0 until it has begun
	Bytes  int64
	Broken bool // a Write has failed
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
	w.Broken = w.Broken || err != nil
	return n, err
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *CountingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

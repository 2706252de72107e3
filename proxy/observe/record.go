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
	streams bool // it is a streaming list, and was counted as one
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
	// NewestAsAny: the newest state was asked for, and the policy has this caller get any.
	NewestAsAny bool
	// Watch: it is a watch that does not begin with the state, so no list is saved.
	Watch bool
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
func (s *Record) Begun() time.Time {
	if s == nil {
		return time.Now()
	}
	return s.begun
}

// LongRunning notes whether the request may take as long as its client likes. Its duration is not
// counted then.
func (s *Record) LongRunning(long bool) {
	if s != nil {
		s.long = long
	}
}

// Ignore makes the request one that is neither counted nor logged.
func (s *Record) Ignore() {
	if s != nil {
		s.ignored = true
	}
}

// Refused notes that listproxy says no to the request, whatever was decided before. h is the header
// of the answer. It loses its Cache-Status: an answer that an intermediary makes by itself should
// have none (RFC 9211, 2).
func (s *Record) Refused(h http.Header, reason string) {
	h.Del(kubehttp.CacheStatusHeader)
	if s == nil {
		return
	}
	s.labels.decision, s.labels.reason, s.labels.semantics = DecisionRefuse, reason, ""
	s.cacheStatus = ""
}

// Decided notes what was found out about a request. With a reason it is forwarded.
func (s *Record) Decided(list policy.Request, semantics policy.Semantics, reason reason.Reason) {
	if s == nil {
		return
	}
	s.decided, s.list, s.served = true, list, Served{}
	s.labels.decision, s.labels.reason, s.labels.semantics = DecisionServe, string(reason), semantics
	if reason != "" {
		s.labels.decision = DecisionForward
	}
}

// Serving notes what is about to be written from memory.
func (s *Record) Serving(answer Served) {
	if s != nil {
		s.served = answer
	}
}

// SetCacheStatus says in h, the header of the answer, and in the access log where the answer comes
// from.
func (s *Record) SetCacheStatus(h http.Header, value string) {
	h.Set(kubehttp.CacheStatusHeader, value)
	if s != nil {
		s.cacheStatus = value
	}
}

// Told notes that Cache-Status has another reason for a forward than was noted, since the caller may
// not know that one. Metrics and traces get it too, unless it is review-failed.
func (s *Record) Told(why reason.Reason, cacheStatus string) {
	if s == nil {
		return
	}
	s.cacheStatus = cacheStatus
	if why != reason.ReviewFailed {
		s.labels.reason = string(why)
	}
}

// Answered notes that the upstream has begun to answer a request that was forwarded. The writer
// does not hear of the 101 of a connection that is taken over.
func (s *Record) Answered(code int) {
	if s == nil {
		return
	}
	if code == http.StatusSwitchingProtocols {
		s.answer.Code = code
	}
	s.countCaller(code)
}

// Sent notes an answer that was not written with the ResponseWriter, but on the connection.
func (s *Record) Sent(code int, bytes int64) {
	if s != nil {
		s.answer.Code, s.answer.Bytes = code, bytes
	}
}

// end counts the request, and ends its span.
func (s *Record) end() {
	if s.observer == nil || s.ignored {
		return
	}
	if s.whole && s.answer.Code == 0 {
		s.answer.Code = http.StatusOK // as net/http says for a handler that wrote nothing
	}
	s.Trace(s.request, false) // of a request that was refused before anybody asked who sends it
	ctx := context.Background()
	if s.span != nil {
		ctx = s.request.Context() // for exemplars
	}
	now := time.Now()
	s.labels.resource, s.labels.code = s.resource(s.answer.Code, now), s.answer.Code
	s.endWatch(s.observer.requests.count(ctx, s.labels, now.Sub(s.begun), s.long, s.answer.Bytes, s.served))
	if s.span != nil {
		s.endSpan()
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

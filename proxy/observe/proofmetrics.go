package observe

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/policy/reason"
)

// What became of a proof of the newest state, beside the reasons.
const (
	proofProven = "proven"
	proofGone   = "gone" // the caller has left
)

// ProofResults returns every result of a proof of the newest state.
func ProofResults() []string {
	all := []string{proofProven, proofGone}
	for _, why := range reason.Forwarding() {
		all = append(all, string(why))
	}
	return all
}

// newestMetrics count what becomes of lists of the newest state.
type newestMetrics struct {
	proof    metric.Float64Histogram
	waiting  metric.Int64UpDownCounter
	estimate metric.Int64Counter

	byResult seriesOf[string, []metric.RecordOption]
	byReason seriesOf[reason.Reason, []metric.AddOption]
}

func newNewestMetrics(meter metric.Meter) (*newestMetrics, error) {
	m := &newestMetrics{}
	var errs [3]error
	m.proof, errs[0] = meter.Float64Histogram("listproxy.proof.duration", metric.WithUnit("s"),
		metric.WithDescription("How long lists of the newest state waited for the proof that memory has it, by result: proven, the "+
			"reason why they were forwarded, or gone (the client had left)."),
		metric.WithExplicitBucketBoundaries(durations...))
	m.waiting, errs[2] = meter.Int64UpDownCounter("listproxy.proof.waiting", metric.WithUnit("{list}"),
		metric.WithDescription("Lists of the newest state that wait for the proof that memory has it."))
	m.estimate, errs[1] = meter.Int64Counter("listproxy.newest.estimate", metric.WithUnit("{list}"),
		metric.WithDescription("Lists of the newest state that were forwarded because --consistent-lists is off, and succeeded, by what it "+
			"would have done with them: answered from memory (none), or the reason why it would have forwarded them too."))
	m.byResult.make = func(result string) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(LabelResult.String(result)))}
	}
	m.byReason.make = func(why reason.Reason) []metric.AddOption {
		return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(LabelReason.String(OrNone(string(why)))))}
	}
	return m, errors.Join(errs[:]...)
}

// Proving counts a list that begins to wait for the proof that memory has the newest state; ctx is
// the request's. The function that it returns must be called when the wait is over, with the reason
// why there is no proof, or None. It returns the result.
func (o *Observer) Proving(ctx context.Context) (over func(why reason.Reason) string) {
	if o == nil {
		return func(why reason.Reason) string { return string(why) }
	}
	begun := time.Now()
	o.newest.waiting.Add(context.Background(), 1)
	return func(why reason.Reason) string {
		o.newest.waiting.Add(context.Background(), -1)
		result := string(why)
		switch {
		case why == reason.None:
			result = proofProven
		case ctx.Err() != nil:
			result = proofGone
		}
		o.newest.proof.Record(context.Background(), time.Since(begun).Seconds(), o.newest.byResult.of(result)...)
		return result
	}
}

// Estimate counts a list of the newest state that was forwarded because --consistent-lists is off;
// why is the reason to forward it if it were on.
func (o *Observer) Estimate(why reason.Reason) {
	if o != nil {
		o.newest.estimate.Add(context.Background(), 1, o.newest.byReason.of(why)...)
	}
}

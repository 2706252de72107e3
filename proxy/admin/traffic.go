package admin

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

const (
	// recentTime is the time that the status page calls recent.
	recentTime = 5 * time.Minute
	// sampleEvery is how often the counters are kept for that.
	sampleEvery = 15 * time.Second
)

// samples keep the counters of the last five minutes, so that the status page can say what is new.
// The zero value has none. They are safe for concurrent use.
type samples struct {
	mu   sync.Mutex
	kept []sample // the oldest first, at most one that is older than recentTime
}

// sample is what had been counted at a time.
type sample struct {
	at     time.Time
	counts trafficCounts
}

// Run keeps the counters of the last minutes until ctx ends. Without it, recent is all since the
// process began.
func (s *StatusSource) Run(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if counts, err := s.readCounts(); err == nil {
				s.samples.keep(sample{now, s.trafficCounts(counts)})
			}
		}
	}
}

// trafficCounts are the counters of counts, and those that are no metrics.
func (s *StatusSource) trafficCounts(counts counts) trafficCounts {
	traffic := counts.traffic
	lists := counts.lists(s.Observer.Streaming())
	traffic.answered, traffic.forwarded, traffic.streaming = lists.Answered, lists.Forwarded, lists.Streaming
	traffic.other, traffic.refused = lists.Other, lists.Refused
	if s.Reviews != nil {
		traffic.reviewsKnown = int64(s.Reviews().Hits) // #nosec G115 -- a count
	}
	return traffic
}

// trafficCounts are counters since the process began.
type trafficCounts struct {
	answered, forwarded, streaming, other, refused, tooMany, upstreamTooMany int64
	reviewsKnown                                                             int64
	memory, upstream, reviews                                                buckets
}

// buckets is a histogram: how many there are up to each bound, cumulative.
type buckets struct {
	bounds []float64
	counts []float64
	all    float64
}

// add adds another histogram of the same bounds.
func (b *buckets) add(h *dto.Histogram) {
	if b.bounds == nil {
		for _, bucket := range h.GetBucket() {
			b.bounds = append(b.bounds, bucket.GetUpperBound())
		}
		b.counts = make([]float64, len(b.bounds))
	}
	for i, bucket := range h.GetBucket() {
		if i < len(b.counts) {
			b.counts[i] += float64(bucket.GetCumulativeCount())
		}
	}
	b.all += float64(h.GetSampleCount())
}

// since is what has come since another one was read.
func (b buckets) since(before buckets) buckets {
	counts := slices.Clone(b.counts)
	for i := range counts {
		if i < len(before.counts) {
			counts[i] -= before.counts[i]
		}
	}
	return buckets{b.bounds, counts, b.all - before.all}
}

// quantile estimates the value below which the given share of all values lies, like Prometheus'
// histogram_quantile. If that is above the last bound, it returns the last bound.
func (b buckets) quantile(share float64) float64 {
	rank, below, from := share*b.all, 0.0, 0.0
	for i, bound := range b.bounds {
		if math.IsInf(bound, 1) {
			break
		}
		if here := b.counts[i]; here >= rank && here > below {
			return from + (bound-from)*(rank-below)/(here-below)
		}
		below, from = b.counts[i], bound
	}
	return from
}

func (b buckets) latency() statusz.Latency {
	if b.all <= 0 {
		return statusz.Latency{}
	}
	return statusz.Latency{Requests: int64(b.all), Median: b.quantile(0.5), P99: b.quantile(0.99)}
}

// since is what was counted since before.
func (c trafficCounts) since(before trafficCounts, lasting time.Duration) statusz.Traffic {
	traffic := statusz.Traffic{
		Seconds:  lasting.Seconds(),
		Answered: c.answered - before.answered, Forwarded: c.forwarded - before.forwarded, Streaming: c.streaming - before.streaming,
		Other: max(0, c.other-before.other), Refused: c.refused - before.refused,
		TooMany: c.tooMany - before.tooMany, UpstreamTooMany: c.upstreamTooMany - before.upstreamTooMany,
		Memory: c.memory.since(before.memory).latency(), Upstream: c.upstream.since(before.upstream).latency(),
		Reviews: c.reviews.since(before.reviews).latency(), ReviewsKnown: c.reviewsKnown - before.reviewsKnown,
	}
	traffic.SetShare()
	return traffic
}

// The histograms that are read, by their names at Prometheus.
const (
	requestDuration = "listproxy_request_duration_seconds"
	reviewDuration  = "listproxy_review_duration_seconds"
)

// addHistograms reads how long requests took.
func (c *trafficCounts) addHistograms(family *dto.MetricFamily) {
	for _, m := range family.GetMetric() {
		switch {
		case family.GetName() == reviewDuration:
			c.reviews.add(m.GetHistogram())
		case family.GetName() != requestDuration, labelOf(m, string(observe.LabelSemantics)) == observe.OrNone(""):
		case labelOf(m, string(observe.LabelDecision)) == observe.DecisionServe:
			c.memory.add(m.GetHistogram())
		case labelOf(m, string(observe.LabelDecision)) == observe.DecisionForward:
			c.upstream.add(m.GetHistogram())
		}
	}
}

// keep keeps a sample, and drops those that are not needed any more.
func (t *samples) keep(s sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, s)
	for len(t.kept) > 1 && s.at.Sub(t.kept[1].at) >= recentTime {
		t.kept = t.kept[1:]
	}
}

// before returns the sample with which the present counters are compared: the last that is at least
// five minutes old, or that of the start, when all counters were 0.
func (t *samples) before(now, started time.Time) sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := sample{at: started}
	for _, s := range t.kept {
		if now.Sub(s.at) < recentTime {
			break
		}
		found = s
	}
	return found
}

// inflightStatus says what is in flight.
func inflightStatus(s inflight.Stats) statusz.Inflight {
	return statusz.Inflight{
		Requests: s.Short.InUse, LongRunning: s.LongRunning.InUse, Bytes: s.Bytes.InUse,
		Waiting: int64(s.Short.Waiting + s.LongRunning.Waiting + s.Bytes.Waiting),
	}
}

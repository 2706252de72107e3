package main

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// labels choose series: those that have all of these.
type labels map[string]string

// sample is what one scrape said.
type sample struct {
	at       time.Time
	families map[string]*dto.MetricFamily
}

// scrape reads all metrics every so often until ctx ends. A scrape that the end cuts off does not
// count.
func scrape(ctx context.Context, target string) ([]sample, error) {
	var samples []sample
	var failed error
	for range poll.Ticks(ctx, scrapeEvery) {
		s, err := scrapeOnce(ctx, target)
		switch {
		case err == nil:
			samples = append(samples, s)
		case ctx.Err() == nil:
			failed = errors.Join(failed, err)
		}
	}
	return samples, failed
}

func scrapeOnce(ctx context.Context, target string) (sample, error) {
	s := sample{at: time.Now(), families: map[string]*dto.MetricFamily{}}
	err := soak.Families(ctx, http.DefaultClient, target, func(family *dto.MetricFamily) { s.families[family.GetName()] = family })
	return s, err
}

// chosen are the series of a metric that have the labels.
func (s sample) chosen(name string, want labels) []*dto.Metric {
	var found []*dto.Metric
	for _, m := range s.families[name].GetMetric() {
		has := maps.Clone(want)
		for _, l := range m.GetLabel() {
			if has[l.GetName()] == l.GetValue() {
				delete(has, l.GetName())
			}
		}
		if len(has) == 0 {
			found = append(found, m)
		}
	}
	return found
}

// sum adds up series.
func (s sample) sum(name string, want labels) float64 {
	sum := 0.0
	for _, m := range s.chosen(name, want) {
		sum += valueOf(m)
	}
	return sum
}

func valueOf(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

// values are those that a label has.
func values(samples []sample, name, label string, want labels) []string {
	known := map[string]bool{}
	for _, s := range samples {
		for _, m := range s.chosen(name, want) {
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					known[l.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// buckets adds up histograms: how many observations are at most so many seconds.
func (s sample) buckets(name string, want labels) map[float64]float64 {
	sums := map[float64]float64{}
	for _, m := range s.chosen(name, want) {
		for _, b := range m.GetHistogram().GetBucket() {
			sums[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
		sums[math.Inf(1)] = sums[math.Inf(1)] + float64(m.GetHistogram().GetSampleCount()) - infinite(m)
	}
	return sums
}

// infinite is what a histogram's own last bucket has said already.
func infinite(m *dto.Metric) float64 {
	for _, b := range m.GetHistogram().GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			return float64(b.GetCumulativeCount())
		}
	}
	return 0
}

// quantile is histogram_quantile: within a bucket, observations are taken to be spread evenly. NaN
// where there were none.
func quantile(q float64, cumulative map[float64]float64) float64 {
	bounds := slices.Sorted(maps.Keys(cumulative))
	if len(bounds) < 2 || cumulative[bounds[len(bounds)-1]] <= 0 {
		return math.NaN()
	}
	rank := q * cumulative[bounds[len(bounds)-1]]
	low, below := 0.0, 0.0
	for i, bound := range bounds {
		count := cumulative[bound]
		if count >= rank {
			if i == len(bounds)-1 {
				return low // beyond the last bound
			}
			if count == below {
				return bound
			}
			return low + (bound-low)*(rank-below)/(count-below)
		}
		low, below = bound, count
	}
	return low
}

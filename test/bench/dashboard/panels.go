package main

import (
	"fmt"
	"math"
	"time"
)

// window is over how long rates are: PromQL's range.
const window = 12 * time.Second

// line is a series of a panel, with a value for each sample; NaN is a hole.
type line struct {
	name   string
	values []float64
}

// panel is one plot.
type panel struct {
	title string
	unit  func(float64) string
	log   bool            // the scale, not the values
	times []time.Duration // since the first sample
	lines []line
}

// panels are the main ones of the dashboard, with the same titles.
func panels(samples []sample) []panel {
	times := make([]time.Duration, len(samples))
	for i, s := range samples {
		times[i] = s.at.Sub(samples[0].at)
	}
	all := []panel{
		{title: "Lists from memory, of those that ask for a revision", unit: percent, lines: []line{hitShare(samples)}},
		{title: "Forwarded, by reason, and from memory", unit: perSecond, lines: byReason(samples)},
		{title: "Time of an answer", unit: seconds, log: true, lines: latencies(samples)},
		{title: "Bytes that kube-apiserver did not encode", unit: bytesPerSecond, lines: []line{
			{"saved", rate(samples, "listproxy_saved_bytes_total", nil)},
			{"received by feeds", rate(samples, "listproxy_feed_received_bytes_total", nil)},
		}},
		{title: "Feeds: age of the newest state, at most", unit: seconds, lines: gauges(samples, "listproxy_feed_lag_seconds")},
		{title: "Stored, by collection", unit: byteSize, lines: gauges(samples, "listproxy_collection_size_bytes")},
		{title: "Found in the caches", unit: percent, lines: []line{
			{"reviews", share(samples, "listproxy_review_lookups_total")},
			{"compressed segments", share(samples, "listproxy_compression_lookups_total")},
		}},
		{title: "Memory of the process", unit: byteSize, lines: []line{
			{"resident", read(samples, "process_resident_memory_bytes")},
			{"Go's heap", read(samples, "go_memstats_heap_alloc_bytes")},
			{"stored", read(samples, "listproxy_stored_bytes")},
		}},
	}
	for i := range all {
		all[i].times = times
	}
	return all
}

// before is the sample that a rate at i begins with; ok is false at the beginning.
func before(samples []sample, i int) (j int, ok bool) {
	for j = i - 1; j >= 0; j-- {
		if samples[i].at.Sub(samples[j].at) >= window {
			return j, true
		}
	}
	return 0, false
}

// increases are those of a counter within the window.
func increases(samples []sample, of func(sample) float64) []float64 {
	out := make([]float64, len(samples))
	for i := range samples {
		out[i] = math.NaN()
		if j, ok := before(samples, i); ok {
			out[i] = of(samples[i]) - of(samples[j])
		}
	}
	return out
}

func rate(samples []sample, name string, want labels) []float64 {
	out := increases(samples, func(s sample) float64 { return s.sum(name, want) })
	for i := range out {
		if j, ok := before(samples, i); ok {
			out[i] /= samples[i].at.Sub(samples[j].at).Seconds()
		}
	}
	return out
}

func read(samples []sample, name string) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.sum(name, nil)
	}
	return out
}

func quotient(over, under []float64) []float64 {
	out := make([]float64, len(over))
	for i := range over {
		out[i] = over[i] / under[i] // NaN where there was nothing
	}
	return out
}

func share(samples []sample, name string) []float64 {
	hits := increases(samples, func(s sample) float64 { return s.sum(name, labels{"result": "hit"}) })
	all := increases(samples, func(s sample) float64 { return s.sum(name, nil) })
	return quotient(hits, all)
}

// hitShare is of the lists that could come from memory by what they ask for.
func hitShare(samples []sample) line {
	semantics := []string{"any", "not-older-than", "exact", "continue"}
	count := func(want labels) []float64 {
		return increases(samples, func(s sample) float64 {
			sum := 0.0
			for _, each := range semantics {
				want["semantics"] = each
				sum += s.sum("listproxy_requests_total", want)
			}
			return sum
		})
	}
	return line{"from memory", quotient(count(labels{"decision": "serve"}), count(labels{}))}
}

func byReason(samples []sample) []line {
	lines := []line{{"from memory", rate(samples, "listproxy_requests_total", labels{"decision": "serve"})}}
	for _, reason := range values(samples, "listproxy_requests_total", "reason", labels{"decision": "forward"}) {
		lines = append(lines, line{reason, rate(samples, "listproxy_requests_total", labels{"decision": "forward", "reason": reason})})
	}
	return lines
}

func latencies(samples []sample) []line {
	var lines []line
	for _, what := range []struct{ name, decision string }{{"from memory", "serve"}, {"forwarded", "forward"}} {
		for _, q := range []float64{0.5, 0.99} {
			out := make([]float64, len(samples))
			for i := range samples {
				out[i] = math.NaN()
				j, ok := before(samples, i)
				if !ok {
					continue
				}
				grown := samples[i].buckets("listproxy_request_duration_seconds", labels{"decision": what.decision})
				for bound, count := range samples[j].buckets("listproxy_request_duration_seconds", labels{"decision": what.decision}) {
					grown[bound] -= count
				}
				out[i] = quantile(q, grown)
			}
			lines = append(lines, line{fmt.Sprintf("%s, %g%%", what.name, q*100), out})
		}
	}
	return lines
}

// gauges are a metric's series, by resource and representation.
func gauges(samples []sample, name string) []line {
	var lines []line
	for _, resource := range values(samples, name, "resource", nil) {
		for _, representation := range values(samples, name, "representation", labels{"resource": resource}) {
			want := labels{"resource": resource, "representation": representation}
			out := make([]float64, len(samples))
			for i, s := range samples {
				out[i] = math.NaN()
				if len(s.chosen(name, want)) > 0 {
					out[i] = s.sum(name, want)
				}
			}
			lines = append(lines, line{resource + " " + representation, out})
		}
	}
	return lines
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", v*100) }

func perSecond(v float64) string { return fmt.Sprintf("%.3g/s", v) }

func seconds(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.001:
		return fmt.Sprintf("%.3g µs", v*1e6)
	case v < 1:
		return fmt.Sprintf("%.3g ms", v*1e3)
	}
	return fmt.Sprintf("%.3g s", v)
}

func byteSize(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if v >= unit.size {
			return fmt.Sprintf("%.3g %s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g B", v)
}

func bytesPerSecond(v float64) string { return byteSize(v) + "/s" }

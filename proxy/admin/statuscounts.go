package admin

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
)

// The names of the metrics that readMetrics reads.
const (
	metricRequests     = "listproxy_requests_total"
	metricProcessBytes = "process_resident_memory_bytes"
)

// readMetrics reads metrics, and sets the counts of requests and the resident memory of the process.
func (s *Status) readMetrics(metrics prometheus.Gatherer) {
	families, _ := metrics.Gather() // after an error, some metrics are missing; the error is logged at each scrape
	reasons := map[string]Reason{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			switch family.GetName() {
			case metricRequests:
				s.countRequests(series, reasons)
			case metricProcessBytes:
				s.Memory.Process = int64(series.GetGauge().GetValue())
			}
		}
	}
	s.Lists.setShare()
	s.Watches.setShare()
	s.Reasons = slices.AppendSeq(s.Reasons, maps.Values(reasons)) // sorted later (Status.sort)
}

// countRequests adds the number of requests in one series of metricRequests to s.Lists or s.Watches. If the requests were
// forwarded, it adds them to their reason in reasons, too. It ignores a series of another verb.
func (s *Status) countRequests(series *dto.Metric, reasons map[string]Reason) {
	labels := map[string]string{}
	for _, label := range series.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	count := int64(series.GetCounter().GetValue())
	var answers *Answers
	var lists, watches int64 // one of them is count, and the other is 0
	switch labels[observe.LabelVerb] {
	case observe.VerbList:
		answers = &s.Lists
		lists = count
	case observe.VerbWatch:
		answers = &s.Watches
		watches = count
	default:
		return
	}
	switch labels[observe.LabelDecision] {
	case observe.DecisionServe:
		answers.FromMemory += count
	case observe.DecisionForward:
		answers.Forwarded += count
		name := labels[observe.LabelReason]
		meaning, _ := reason.Reason(name).Explain() // without the remedy
		known := reasons[name]
		reasons[name] = Reason{Reason: name, Lists: known.Lists + lists, Watches: known.Watches + watches, Meaning: meaning}
	}
}

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

// readMetrics sets the counts of requests and the resident memory of the process, which are read from metrics.
func (s *Status) readMetrics(metrics prometheus.Gatherer) {
	families, _ := metrics.Gather() // Metrics that cannot be read are missing here, and are logged at each scrape.
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

// countRequests adds the lists or watches of one series of metricRequests to the counts of s, and the forwarded ones to reasons, too.
// It ignores a series of another verb.
func (s *Status) countRequests(series *dto.Metric, reasons map[string]Reason) {
	labels := map[string]string{}
	for _, label := range series.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	count := int64(series.GetCounter().GetValue())
	verb := labels[observe.LabelVerb]
	answers := map[string]*Answers{observe.VerbList: &s.Lists, observe.VerbWatch: &s.Watches}[verb]
	if answers == nil {
		return
	}
	switch labels[observe.LabelDecision] {
	case observe.DecisionServe:
		answers.FromMemory += count
	case observe.DecisionForward:
		answers.Forwarded += count
		name := labels[observe.LabelReason]
		r := reasons[name]
		r.Reason = name
		r.Meaning, _ = reason.Reason(name).Explain()
		if verb == observe.VerbList {
			r.Lists += count
		} else {
			r.Watches += count
		}
		reasons[name] = r
	}
}

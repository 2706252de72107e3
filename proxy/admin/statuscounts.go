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
	metricRequests        = "listproxy_requests_total"
	metricCompressedBytes = "listproxy_compression_size_bytes"
	metricProcessBytes    = "process_resident_memory_bytes"
	metricProcessLimit    = "go_gc_gomemlimit_bytes"
)

// unlimitedFrom is a number of bytes above any real memory limit: without a limit the runtime reports 8 EiB. ProcessLimit is 0
// then.
const unlimitedFrom = 1 << 60

// readMetrics sets the counts and sizes that are read from metrics.
func (s *Status) readMetrics(metrics prometheus.Gatherer) {
	families, _ := metrics.Gather() // Metrics that cannot be read are missing here, and are logged at each scrape.
	reasons := map[string]Reason{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			gauge := series.GetGauge().GetValue() // 0 if the series is a counter
			switch family.GetName() {
			case metricRequests:
				s.countRequests(series, reasons)
			case metricCompressedBytes:
				s.Memory.Compressed = int64(gauge)
			case metricProcessBytes:
				s.Memory.Process = int64(gauge)
			case metricProcessLimit:
				if gauge < unlimitedFrom {
					s.Memory.ProcessLimit = int64(gauge)
				}
			}
		}
	}
	s.Lists.setShare()
	s.Watches.setShare()
	s.Reasons = slices.AppendSeq(s.Reasons, maps.Values(reasons)) // sorted later (Status.sort)
}

// countRequests adds the requests of one series of metricRequests to the counts of s, and forwarded requests to reasons. It
// ignores other verbs than list and watch.
func (s *Status) countRequests(series *dto.Metric, reasons map[string]Reason) {
	labels := map[string]string{}
	for _, label := range series.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	count := int64(series.GetCounter().GetValue())
	var answers *Answers
	verb := labels[observe.LabelVerb]
	switch verb {
	case observe.VerbList:
		answers = &s.Lists
	case observe.VerbWatch:
		answers = &s.Watches
	default:
		return
	}
	switch labels[observe.LabelDecision] {
	case observe.DecisionServe:
		answers.Answered += count
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

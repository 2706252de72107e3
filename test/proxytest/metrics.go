package proxytest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/listproxy/listproxy/test/expect"
)

// Gather returns listproxy's own metrics by name.
func Gather(t testing.TB, metrics prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := metrics.Gather()
	expect.NoError(t, err)
	own := map[string]*dto.MetricFamily{}
	for _, family := range all {
		if strings.HasPrefix(family.GetName(), "listproxy_") {
			own[family.GetName()] = family
		}
	}
	return own
}

// Series returns the series of a family as sorted texts, such as "code=200,verb=list 3". The value of a histogram is its number
// of observations.
func Series(family *dto.MetricFamily) []string {
	var all []string
	for _, m := range family.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		// A metric is one of the three. The others give 0.
		value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		all = append(all, fmt.Sprintf("%s %v", strings.Join(labels, ","), value))
	}
	slices.Sort(all)
	return all
}

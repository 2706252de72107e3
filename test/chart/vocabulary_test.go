package chart

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
)

// vocabulary has the metrics, labels and label values that a query of Prometheus may name. The tests of the chart's rules and
// of its dashboards use it.
type vocabulary struct {
	metrics map[string]map[string]bool // the labels of each metric
	pages   string                     // the documentation, which has every value of a label as a word
}

// targetLabels are labels that Prometheus adds.
var targetLabels = []string{"namespace", "job", "instance"}

// metricRow matches a row of the metrics in docs/reference.md, with a name, a type and labels:
//
//	| `listproxy_requests_total` | counter | `decision`, `verb` |
var metricRow = regexp.MustCompile("(?m)^\\| `(listproxy_\\w+)` \\| (\\w+) \\|([^|]*)\\|")

// minMetrics is far below the number of metrics. If fewer are found, metricRow no longer matches the page.
const minMetrics = 20

// readVocabulary reads docs/reference.md, which another test compares with the code, and the metrics that every Go process
// has.
func readVocabulary(t *testing.T) vocabulary {
	t.Helper()
	reference := pages.Read(t, "docs/reference.md")
	v := vocabulary{
		metrics: map[string]map[string]bool{"up": {}}, // Prometheus' own
		pages:   reference + pages.Read(t, "docs/observability.md"),
	}
	for _, row := range metricRow.FindAllStringSubmatch(reference, -1) {
		name, metricType := row[1], row[2]
		labelNames := row[3]
		labels := map[string]bool{}
		for _, label := range pages.Matches("`([a-z]+)`", labelNames) {
			labels[label] = true
		}
		if metricType != "histogram" {
			v.metrics[name] = labels
			continue
		}
		v.metrics[name+"_count"], v.metrics[name+"_sum"] = labels, labels
		v.metrics[name+"_bucket"] = maps.Clone(labels)
		v.metrics[name+"_bucket"]["le"] = true
	}
	if len(v.metrics) < minMetrics {
		t.Fatalf("%d metrics in docs/reference.md, want at least %d", len(v.metrics), minMetrics)
	}
	families, err := telemetry.NewMetrics("").Gather()
	expect.NoError(t, err)
	for _, family := range families {
		v.metrics[family.GetName()] = map[string]bool{}
	}
	// A process has these on Linux only.
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes"} {
		v.metrics[name] = map[string]bool{}
	}
	return v
}

// Expressions for the parts of PromQL that have names. The examples are from this query:
//
//	sum by (reason) (rate(listproxy_requests_total{verb="list"}[5m])) > 0 and up
var (
	// selector matches a metric with matchers of its labels: listproxy_requests_total{verb="list"}.
	selector = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\{([^}]*)\}`)
	// matcher matches a label and its values in a selector: verb="list".
	matcher = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=) *"([^"]*)"`)
	// grouping matches a clause with labels: by (reason).
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
	// word matches a metric, a label or an operator, and a function with its parenthesis: up, reason, and, rate(.
	word = regexp.MustCompile(`\b[a-zA-Z_:][\w:]*(?: *\()?`)
)

var operators = []string{"and", "or", "unless", "offset"}

// unknown returns the complaints about a query: a sentence for each metric, label and value in it that does not exist. Regular
// expressions are enough to find these names, since promtool checks the grammar.
func (v vocabulary) unknown(query string) []string {
	withoutMatchers := selector.ReplaceAllString(query, "$1")
	metrics := metricsIn(withoutMatchers)
	sentences := v.unknownInSelectors(query)
	for _, metric := range metrics {
		if v.metrics[metric] == nil {
			sentences = append(sentences, "there is no metric "+metric)
		}
	}
	return append(sentences, v.unknownInGroupings(withoutMatchers, metrics)...)
}

// unknownInSelectors returns a sentence for each label and value in {…} that does not exist.
func (v vocabulary) unknownInSelectors(query string) (sentences []string) {
	for _, found := range selector.FindAllStringSubmatch(query, -1) {
		metric, matchers := found[1], found[2]
		for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
			label, values := m[1], m[2]
			if slices.Contains(targetLabels, label) {
				continue
			}
			if !v.metrics[metric][label] {
				sentences = append(sentences, fmt.Sprintf("%s has no label %s", metric, label))
			}
			for value := range strings.SplitSeq(values, "|") {
				if !regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`).MatchString(v.pages) {
					sentences = append(sentences, fmt.Sprintf("no page has the value %s=%q of %s", label, value, metric))
				}
			}
		}
	}
	return sentences
}

// metricsIn returns the names of the metrics in a query without matchers.
func metricsIn(query string) []string {
	return slices.DeleteFunc(word.FindAllString(grouping.ReplaceAllString(query, ""), -1), func(found string) bool {
		isFunction := strings.HasSuffix(found, "(")
		return isFunction || slices.Contains(operators, found)
	})
}

// unknownInGroupings returns a sentence for each label in by (…), on (…) and the like that none of the query's metrics has.
func (v vocabulary) unknownInGroupings(query string, metrics []string) (sentences []string) {
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		for _, label := range word.FindAllString(found[1], -1) {
			hasLabel := func(metric string) bool { return v.metrics[metric][label] }
			if !slices.ContainsFunc(metrics, hasLabel) && !slices.Contains(targetLabels, label) {
				sentences = append(sentences, "no metric in the query has the label "+label)
			}
		}
	}
	return sentences
}

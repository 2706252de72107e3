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

// vocabulary has the metrics, labels and values that a query may name. The tests of rules and of the dashboard use it.
type vocabulary struct {
	metrics map[string]map[string]bool // each metric's labels
	pages   string                     // the documentation, which has every value of a label as a word
}

// targetLabels are labels that Prometheus adds.
var targetLabels = []string{"namespace", "job", "instance"}

// metricRows matches a row of the metrics in docs/reference.md: name, type and labels.
var metricRows = regexp.MustCompile("(?m)^\\| `(listproxy_\\w+)` \\| (\\w+) \\|([^|]*)\\|")

// minMetrics is far below their number: fewer mean that metricRows no longer matches the page.
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
	for _, row := range metricRows.FindAllStringSubmatch(reference, -1) {
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

// Parts of PromQL.
var (
	selectors = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\{([^}]*)\}`)    // metric{matchers}
	matchers  = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=) *"([^"]*)"`) // label="value"
	groupings = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
	names     = regexp.MustCompile(`\b[a-zA-Z_:][\w:]*(?: *\()?`) // a function's name ends with the parenthesis
	operators = []string{"and", "or", "unless", "offset"}
)

// unknown returns a sentence for each metric, label and value in a query that does not exist. promtool checks the
// grammar, so finding names by regular expressions is enough.
func (v vocabulary) unknown(query string) (sentences []string) {
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	// Labels and values in {…}.
	for _, s := range selectors.FindAllStringSubmatch(query, -1) {
		for _, m := range matchers.FindAllStringSubmatch(s[2], -1) {
			metric := s[1]
			label, values := m[1], m[2]
			if slices.Contains(targetLabels, label) {
				continue
			}
			if !v.metrics[metric][label] {
				add("%s has no label %s", metric, label)
			}
			for value := range strings.SplitSeq(values, "|") {
				if !regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`).MatchString(v.pages) {
					add("no page has the value %s=%q of %s", label, value, metric)
				}
			}
		}
	}
	// Metrics.
	query = selectors.ReplaceAllString(query, "$1")
	labels := map[string]bool{} // of all metrics in the query
	for _, name := range names.FindAllString(groupings.ReplaceAllString(query, ""), -1) {
		if strings.HasSuffix(name, "(") || slices.Contains(operators, name) {
			continue
		}
		if v.metrics[name] == nil {
			add("there is no metric %s", name)
		}
		maps.Copy(labels, v.metrics[name])
	}
	// Labels of by (…), on (…) and the like.
	for _, group := range groupings.FindAllStringSubmatch(query, -1) {
		for _, label := range names.FindAllString(group[1], -1) {
			if !labels[label] && !slices.Contains(targetLabels, label) {
				add("no metric in the query has the label %s", label)
			}
		}
	}
	return sentences
}

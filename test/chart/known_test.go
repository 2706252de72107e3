package chart

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
)

// knowledge is what queries can ask for.
type knowledge struct {
	metrics map[string]map[string]bool // and their labels
	words   map[string][]string        // values that a label can have, where that is a small fixed set
}

// ofTargets are labels that Prometheus adds.
var ofTargets = []string{"namespace", "job", "instance"}

// everything is what listproxy has, by docs/reference.md, which another test holds to the code,
// and by what a process says of itself.
func everything(t *testing.T) knowledge {
	t.Helper()
	forwarding := texts(reason.Forwarding())
	k := knowledge{metrics: map[string]map[string]bool{"up": {}}, words: map[string][]string{
		"decision":  {"serve", "forward", "refuse", "none"},
		"purpose":   {"forward", "review", "feed"},
		"result":    append([]string{"hit", "miss", "agrees", "mismatch", "inconclusive", "proven", "gone"}, forwarding...),
		"semantics": texts([]policy.Semantics{policy.Consistent, policy.Any, policy.NotOlderThan, policy.Exact, policy.Continue, "none"}),
		"verb":      {observe.VerbList, observe.VerbWatch, observe.OtherLabel},
		"reason":    slices.Concat(forwarding, []string{"none"}, observe.RefusalReasons(), texts(limits.Overloads()), texts(watch.Endings())),
		"cause":     texts(reason.Losses()),
	}}
	for _, row := range regexp.MustCompile("(?m)^\\| `(listproxy_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(pages.Read(t, "docs/reference.md"), -1) {
		name, labels := row[1], map[string]bool{}
		for _, label := range pages.Matches("`([a-z]+)`", row[3]) {
			labels[label] = true
		}
		if row[2] != "histogram" {
			k.metrics[name] = labels
			continue
		}
		k.metrics[name+"_count"], k.metrics[name+"_sum"] = labels, labels
		k.metrics[name+"_bucket"] = maps.Clone(labels)
		k.metrics[name+"_bucket"]["le"] = true
	}
	if len(k.metrics) < 20 {
		t.Fatalf("only %d metrics in docs/reference.md", len(k.metrics))
	}
	families, err := telemetry.NewMetrics("").Gather()
	expect.NoError(t, err)
	for _, family := range families {
		k.metrics[family.GetName()] = map[string]bool{}
	}
	// On other systems a process says less of itself.
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes"} {
		k.metrics[name] = map[string]bool{}
	}
	return k
}

// texts are words of any type.
func texts[T ~string](words []T) (all []string) {
	for _, word := range words {
		all = append(all, string(word))
	}
	return all
}

var (
	selectors = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\{([^}]*)\}`)
	matchers  = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=) *"([^"]*)"`)
	groupings = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
	aName     = regexp.MustCompile(`\b[a-zA-Z_:][\w:]*(?: *\()?`)
	operators = []string{"and", "or", "unless", "offset"}
)

// faults are what a query asks for that is not there. Its grammar is promtool's business: this only
// has to find names in what promtool can read.
func (k knowledge) faults(query string) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, s := range selectors.FindAllStringSubmatch(query, -1) {
		for _, m := range matchers.FindAllStringSubmatch(s[2], -1) {
			label := m[1]
			if !k.metrics[s[1]][label] && !slices.Contains(ofTargets, label) {
				fault("%s has no label %s", s[1], label)
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if words, fixed := k.words[label]; fixed && !slices.Contains(words, value) {
					fault("%s has never %s=%q", s[1], label, value)
				}
			}
		}
	}
	query = selectors.ReplaceAllString(query, "$1")
	labels := map[string]bool{} // of all metrics in the query
	for _, name := range aName.FindAllString(groupings.ReplaceAllString(query, ""), -1) {
		if strings.HasSuffix(name, "(") || slices.Contains(operators, name) {
			continue
		}
		if k.metrics[name] == nil {
			fault("there is no metric %s", name)
		}
		maps.Copy(labels, k.metrics[name])
	}
	for _, group := range groupings.FindAllStringSubmatch(query, -1) {
		for _, label := range aName.FindAllString(group[1], -1) {
			if !labels[label] && !slices.Contains(ofTargets, label) {
				fault("no metric in the query has the label %s", label)
			}
		}
	}
	return found
}

// TestFaults: what is not there is found.
func TestFaults(t *testing.T) {
	k := everything(t)
	for query, want := range map[string]string{
		`sum by (reason) (rate(listproxy_requests_total{decision="serve"}[5m])) > 0`:                "",
		`histogram_quantile(0.9, sum by (le) (rate(listproxy_review_duration_seconds_bucket[5m])))`: "",
		`up == 0 and on (job) listproxy_stored_bytes offset 1d > 1e9`:                               "",
		`rate(listproxy_request_total[5m])`:                                                         "there is no metric listproxy_request_total",
		`listproxy_review_duration_seconds`:                                                         "there is no metric listproxy_review_duration_seconds",
		`rate(listproxy_requests_total{method="GET"}[5m])`:                                          "listproxy_requests_total has no label method",
		`rate(listproxy_requests_total{verb="get"}[5m])`:                                            `listproxy_requests_total has never verb="get"`,
		`rate(listproxy_requests_total{reason=~"audit|wishes"}[5m])`:                                `listproxy_requests_total has never reason="wishes"`,
		`sum by (namespace, purpose) (rate(listproxy_requests_total[5m]))`:                          "no metric in the query has the label purpose",
	} {
		if found := k.faults(query); want == "" && len(found) > 0 || want != "" && !slices.Contains(found, want) {
			t.Errorf("%s: found %q, not %q", query, found, want)
		}
	}
}

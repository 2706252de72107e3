package chart

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
)

// knowledge is what queries can ask for.
type knowledge struct {
	metrics map[string]map[string]bool // and their labels
	words   map[string][]string        // values that a label can have, where that is a small fixed set
}

// ofTargets are labels that Prometheus adds.
func ofTargets() []string { return []string{"namespace", "job", "instance"} }

// everything is what listproxy has, by docs/reference.md, which another test holds to the code,
// and by what a process says of itself.
func everything(t *testing.T) knowledge {
	t.Helper()
	text, err := os.ReadFile(repository + "/docs/reference.md")
	expect.NoError(t, err)
	k := knowledge{metrics: map[string]map[string]bool{"up": {}}, words: map[string][]string{
		"decision":  {"serve", "forward", "refuse", "none"},
		"purpose":   {"forward", "review", "feed"},
		"result":    {"hit", "miss", "agrees", "mismatch", "inconclusive", "proven", "gone"},
		"semantics": {string(policy.MostRecent), string(policy.Any), string(policy.NotOlderThan), string(policy.Exact), string(policy.Continue), "none"},
		"verb":      {observe.VerbList, observe.VerbWatch, observe.OtherLabel},
	}}
	for _, reason := range reason.Forwarding() {
		k.words["reason"] = append(k.words["reason"], string(reason))
		k.words["result"] = append(k.words["result"], string(reason))
	}
	k.words["reason"] = slices.Concat(k.words["reason"], []string{"none"}, proxy.RefusalReasons())
	for _, ending := range watch.Endings() {
		k.words["reason"] = append(k.words["reason"], string(ending))
	}
	for _, cause := range reason.Losses() {
		k.words["cause"] = append(k.words["cause"], string(cause))
	}
	word := regexp.MustCompile("`([a-z]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| `(listproxy_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		labels := map[string]bool{}
		for _, m := range word.FindAllStringSubmatch(row[3], -1) {
			labels[m[1]] = true
		}
		k.add(row[1], row[2] == "histogram", labels)
	}
	if len(k.metrics) < 20 {
		t.Fatalf("only %d metrics in %s", len(k.metrics), "docs/reference.md")
	}
	families, err := telemetry.NewMetrics("").Gather()
	expect.NoError(t, err)
	for _, family := range families {
		k.add(family.GetName(), false, map[string]bool{})
	}
	// On other systems a process says less of itself.
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes"} {
		k.add(name, false, map[string]bool{})
	}
	return k
}

func (k knowledge) add(name string, histogram bool, labels map[string]bool) {
	if !histogram {
		k.metrics[name] = labels
		return
	}
	for _, suffix := range []string{"_count", "_sum"} {
		k.metrics[name+suffix] = labels
	}
	labels = maps.Clone(labels)
	labels["le"] = true
	k.metrics[name+"_bucket"] = labels
}

var (
	quoted    = regexp.MustCompile(`"[^"]*"`)
	selector  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`^\s*([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*$`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	word      = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	operators = []string{"and", "or", "unless", "offset"}
)

// faults are what a query asks for that is not there. Its grammar is promtool's business: this only
// has to find names in what promtool can read.
func (k knowledge) faults(query string) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	used := map[string]bool{}
	for _, label := range ofTargets() {
		used[label] = true
	}
	for _, m := range selector.FindAllStringSubmatch(query, -1) {
		labels := k.metrics[m[1]]
		for part := range strings.SplitSeq(m[2], ",") {
			match := matcher.FindStringSubmatch(part)
			switch {
			case match == nil:
				fault("%q cannot be read", part)
			case labels[match[1]]:
				for _, value := range k.unknown(match[1], match[2], match[3]) {
					fault("%s has never %s=%q", m[1], match[1], value)
				}
			case !slices.Contains(ofTargets(), match[1]):
				fault("%s has no label %s", m[1], match[1])
			}
		}
	}
	names := selector.ReplaceAllString(quoted.ReplaceAllString(query, ""), "$1 ")
	names = ranges.ReplaceAllString(names, "")
	for _, at := range word.FindAllStringIndex(grouping.ReplaceAllString(names, " "), -1) {
		plain := grouping.ReplaceAllString(names, " ")
		name, rest := plain[at[0]:at[1]], strings.TrimLeft(plain[at[1]:], " \n")
		switch {
		case slices.Contains(operators, name), strings.HasPrefix(rest, "("), at[0] > 0 && plain[at[0]-1] >= '0' && plain[at[0]-1] <= '9':
			// An operator, a function or an aggregation, or the unit of a number.
		case k.metrics[name] == nil:
			fault("there is no metric %s", name)
		default:
			for label := range k.metrics[name] {
				used[label] = true
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(names, -1) {
		for _, label := range word.FindAllString(m[1], -1) {
			if !used[label] {
				fault("no metric in the query has the label %s", label)
			}
		}
	}
	return found
}

// unknown are the values of a match that a label never has.
func (k knowledge) unknown(label, operator, value string) []string {
	words, fixed := k.words[label]
	if !fixed {
		return nil
	}
	values := []string{value}
	if strings.HasSuffix(operator, "~") {
		values = strings.Split(value, "|")
	}
	return slices.DeleteFunc(values, func(v string) bool { return slices.Contains(words, v) })
}

// TestFaults: what is not there is found.
func TestFaults(t *testing.T) {
	k := everything(t)
	for query, want := range map[string]string{
		`sum by (reason) (rate(listproxy_requests_total{decision="serve"}[5m])) > 0`:                "",
		`histogram_quantile(0.9, sum by (le) (rate(listproxy_review_duration_seconds_bucket[5m])))`: "",
		`up == 0 and on (job) listproxy_stored_bytes offset 1d > 1e9`:                               "",
		`rate(listproxy_request_total[5m])`:                                                         "there is no metric listproxy_request_total",
		`rate(listproxy_request_total{decision="serve"}[5m])`:                                       "listproxy_request_total has no label decision",
		`listproxy_review_duration_seconds`:                                                         "there is no metric listproxy_review_duration_seconds",
		`rate(listproxy_requests_total{method="GET"}[5m])`:                                          "listproxy_requests_total has no label method",
		`rate(listproxy_requests_total{verb="get"}[5m])`:                                            `listproxy_requests_total has never verb="get"`,
		`rate(listproxy_requests_total{reason=~"audit|wishes"}[5m])`:                                `listproxy_requests_total has never reason="wishes"`,
		`sum by (namespace, purpose) (rate(listproxy_requests_total[5m]))`:                          "no metric in the query has the label purpose",
		`sum without (colour) (listproxy_stored_bytes)`:                                             "no metric in the query has the label colour",
	} {
		t.Run(query, func(t *testing.T) {
			found := k.faults(query)
			switch {
			case want == "" && len(found) > 0:
				t.Errorf("found %q", found)
			case want != "" && !slices.Contains(found, want):
				t.Errorf("found %q, not %q", found, want)
			}
		})
	}
}

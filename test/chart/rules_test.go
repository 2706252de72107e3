package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/reference"
)

// promtool is the path of Prometheus' tool.
var promtool string

// runPromtool runs promtool, which must exit without an error.
func runPromtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// rule is an alert rule or a recording rule of Prometheus.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// rules returns the rules of the chart.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	expect.NoError(t, yaml.Unmarshal([]byte(pages.Read(t, "charts/listproxy/rules/listproxy.yaml")), &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// TestRules: promtool accepts the rules, and its unit tests in testdata/rules get exactly the alerts that they expect.
func TestRules(t *testing.T) {
	t.Parallel()
	runPromtool(t, "check", "rules", "--lint=all", "--lint-fatal", chart+"/rules/listproxy.yaml")
	tests, err := filepath.Glob("testdata/rules/*.yaml")
	expect.NoError(t, err)
	runPromtool(t, append([]string{"test", "rules"}, tests...)...)
}

// TestRulesQueryKnownMetrics: every metric, label and value in a rule exists.
func TestRulesQueryKnownMetrics(t *testing.T) {
	known := readVocabulary(t)
	for _, r := range rules(t) {
		if r.Record != "" {
			known.metrics[r.Record] = map[string]bool{}
		}
	}
	for _, r := range rules(t) {
		for _, sentence := range known.unknown(r.Expr) {
			t.Errorf("%s%s: %s", r.Record, r.Alert, sentence) // a rule has one of the two names
		}
	}
}

// TestRunbooks: each alert has a severity, a summary and a description, and links to its own section in
// docs/observability.md, which has no section for anything else. docs/reference.md lists every alert.
func TestRunbooks(t *testing.T) {
	var alerts []string
	table := reference.Head("alert", "severity", "for", "")
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		anchor := "observability.md#" + strings.ToLower(r.Alert)
		alerts = append(alerts, r.Alert)
		table += reference.Row("["+r.Alert+"]("+anchor+")", r.Labels["severity"], r.For, r.Annotations["summary"])
		expect.Same(t, "https://github.com/listproxy/listproxy/blob/main/docs/"+anchor, r.Annotations["runbook_url"])
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.For == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no for, summary or description", r.Alert)
		}
	}
	expect.Same(t, alerts, pages.Matches(`(?m)^#+ (Listproxy\w+)$`, pages.Read(t, "docs/observability.md")))
	reference.Check(t, "../../docs/reference.md", "alerts", table)
}

// TestDashboardQueriesKnownMetrics: promtool accepts every query of the dashboards, and every metric, label and value in a
// query exists.
func TestDashboardQueriesKnownMetrics(t *testing.T) {
	known := readVocabulary(t)
	grafanaVariables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	queriesAsRules := "groups: [{name: queries, rules: ["
	for name, text := range dashboards(t) {
		var d struct {
			UID, Title string
			Panels     []struct {
				ID      int
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		expect.NoError(t, json.Unmarshal([]byte(text), &d))
		if d.UID == "" || d.Title == "" {
			t.Errorf("%s has no uid or title", name)
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				expr := grafanaVariables.Replace(target.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s: %q: a variable that this test does not know: %s", name, p.Title, target.Expr)
				}
				for _, sentence := range known.unknown(expr) {
					t.Errorf("%s: %q: %s", name, p.Title, sentence)
				}
				queriesAsRules += fmt.Sprintf("{record: 'panel%d:%s', expr: %q},\n", p.ID, target.RefID, expr)
			}
		}
	}
	runPromtool(t, "check", "rules", writeValues(t, queriesAsRules+"]}]"))
}

// dashboards returns the dashboards of the chart, by file name. Each must be in the ConfigMap unchanged: Helm must not render
// the braces in it.
func dashboards(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(chart + "/dashboards/*.json")
	expect.NoError(t, err)
	sources := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		sources[filepath.Base(file)] = string(text)
	}
	configMaps := ofType[*corev1.ConfigMap](render(t, writeValues(t, "dashboards: {enabled: true}")).objects)
	i := slices.IndexFunc(configMaps, func(c *corev1.ConfigMap) bool { return c.Labels["grafana_dashboard"] == "1" })
	if i < 0 || len(sources) == 0 {
		t.Fatal("no dashboards, or no ConfigMap with the label that Grafana looks for")
	}
	expect.Same(t, sources, configMaps[i].Data)
	return sources
}

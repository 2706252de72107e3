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

// check runs promtool, which has to be content.
func check(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// rule is one of a file of Prometheus.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// rules reads those of the chart.
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

// TestRules: Prometheus reads the rules as they are meant, and alerts come when they should, and not
// else.
func TestRules(t *testing.T) {
	t.Parallel()
	check(t, "check", "rules", "--lint=all", "--lint-fatal", chart+"/rules/listproxy.yaml")
	tests, err := filepath.Glob("testdata/rules/*.yaml")
	expect.NoError(t, err)
	check(t, append([]string{"test", "rules"}, tests...)...)
}

// TestRulesAsk: every query asks for what there is.
func TestRulesAsk(t *testing.T) {
	known := readKnowledge(t)
	for _, r := range rules(t) {
		if r.Record != "" {
			known.metrics[r.Record] = map[string]bool{}
		}
	}
	for _, r := range rules(t) {
		for _, sentence := range known.unknown(r.Expr) {
			t.Errorf("%s%s: %s", r.Record, r.Alert, sentence)
		}
	}
}

// TestRunbooks: each alert says how bad it is and what it is about, and leads to a section that
// says what to do. There is a section for nothing else. docs/reference.md has every alert.
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

// TestDashboardAsks: Prometheus can read every query, and all that they ask for is there.
func TestDashboardAsks(t *testing.T) {
	known := readKnowledge(t)
	// What Grafana puts in.
	grafana := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	asRules := "groups: [{name: queries, rules: ["
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
				expr := grafana.Replace(target.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s: %q: a variable that this test does not know: %s", name, p.Title, target.Expr)
				}
				for _, sentence := range known.unknown(expr) {
					t.Errorf("%s: %q: %s", name, p.Title, sentence)
				}
				asRules += fmt.Sprintf("{record: 'panel%d:%s', expr: %q},\n", p.ID, target.RefID, expr)
			}
		}
	}
	check(t, "check", "rules", values(t, asRules+"]}]"))
}

// dashboards are those of the chart, by file. All of them are in the ConfigMap as they stand, braces
// included.
func dashboards(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(chart + "/dashboards/*.json")
	expect.NoError(t, err)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		all[filepath.Base(file)] = string(text)
	}
	made := of[*corev1.ConfigMap](render(t, values(t, "dashboards: {enabled: true}")).objects)
	i := slices.IndexFunc(made, func(c *corev1.ConfigMap) bool { return c.Labels["grafana_dashboard"] == "1" })
	if i < 0 || len(all) == 0 {
		t.Fatal("no dashboards, or no ConfigMap with the label that Grafana looks for")
	}
	expect.Same(t, all, made[i].Data)
	return all
}

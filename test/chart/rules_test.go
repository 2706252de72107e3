package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/reference"
)

// TestRules: Prometheus reads the rules as they are meant.
func TestRules(t *testing.T) {
	check(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
}

// TestRulesFire: alerts come when they should, and not else.
func TestRulesFire(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/rules/*.yaml")
	expect.NoError(t, err)
	if len(files) == 0 {
		t.Fatal("no tests in testdata/rules")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { check(t, "test", "rules", file) })
	}
}

// TestRulesAsk: every query asks for what there is.
func TestRulesAsk(t *testing.T) {
	known := everything(t)
	for _, r := range rules(t) {
		if r.Record != "" {
			known.metrics[r.Record] = map[string]bool{}
		}
	}
	for _, r := range rules(t) {
		for _, fault := range known.faults(r.Expr) {
			t.Errorf("%s%s: %s", r.Record, r.Alert, fault)
		}
	}
}

// TestRunbooks: each alert says how bad it is and what it is about, and leads to a section that
// says what to do. There is a section for nothing else.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(docsFile)
	expect.NoError(t, err)
	const page = "https://github.com/listproxy/listproxy/blob/main/docs/observability.md#"
	var alerts, explained []string
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		if got, want := r.Annotations["runbook_url"], page+strings.ToLower(r.Alert); got != want {
			t.Errorf("%s: runbook_url %q, not %q", r.Alert, got, want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.For == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no for, summary or description", r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (Listproxy\w+)$`).FindAllSubmatch(text, -1) {
		explained = append(explained, string(m[1]))
	}
	if diff := cmp.Diff(alerts, explained); diff != "" {
		t.Errorf("alerts and their sections in docs/observability.md, in one order (-alerts +sections):\n%s", diff)
	}
}

// TestReference: docs/reference.md has every alert.
func TestReference(t *testing.T) {
	table := reference.Head("alert", "severity", "for", "")
	for _, r := range rules(t) {
		if r.Alert != "" {
			name := "[" + r.Alert + "](observability.md#" + strings.ToLower(r.Alert) + ")"
			table += reference.Row(name, r.Labels["severity"], r.For, r.Annotations["summary"])
		}
	}
	reference.Check(t, "../../docs/reference.md", "alerts", table)
}

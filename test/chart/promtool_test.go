package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/listproxy/listproxy/test/expect"
)

const (
	rulesFile  = "../../charts/listproxy/rules/listproxy.yaml"
	dashboards = "../../charts/listproxy/dashboards"
	docsFile   = "../../docs/observability.md"
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
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type ruleFile struct {
	Groups []group `yaml:"groups"`
}

// rules reads those of the chart.
func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	expect.NoError(t, err)
	var file ruleFile
	expect.NoError(t, yaml.Unmarshal(text, &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// write writes rules to a file and returns its path.
func write(t *testing.T, all []rule) string {
	t.Helper()
	text, err := yaml.Marshal(ruleFile{Groups: []group{{Name: "queries", Rules: all}}})
	expect.NoError(t, err)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	expect.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// A panel of Grafana's, as far as it is looked at here.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	GridPos struct{ H, W, X, Y int } `json:"gridPos"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

// read reads the dashboards of the chart, by file.
func read(t *testing.T) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dashboards, "*.json"))
	expect.NoError(t, err)
	if len(files) == 0 {
		t.Fatalf("no dashboards in %s", dashboards)
	}
	all := map[string][]panel{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		var d struct {
			UID    string  `json:"uid"`
			Title  string  `json:"title"`
			Panels []panel `json:"panels"`
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.UID == "" || d.Title == "" {
			t.Errorf("%s has no uid or title", file)
		}
		all[filepath.Base(file)] = d.Panels
	}
	return all
}

// TestDashboardAsks: Prometheus can read every query, and all that they ask for is there.
func TestDashboardAsks(t *testing.T) {
	known := everything(t)
	// What Grafana puts in.
	grafana := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	var all []rule
	for file, panels := range read(t) {
		for _, p := range panels {
			for _, target := range p.Targets {
				expr := grafana.Replace(target.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s: %q: a variable that this test does not know: %s", file, p.Title, target.Expr)
				}
				for _, fault := range known.faults(expr) {
					t.Errorf("%s: %q: %s", file, p.Title, fault)
				}
				all = append(all, rule{Record: fmt.Sprintf("panel%d:%s", p.ID, target.RefID), Expr: expr})
			}
		}
	}
	check(t, "check", "rules", write(t, all))
}

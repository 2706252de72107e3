package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// made is what is another one each time.
var made = regexp.MustCompile(`(?m)^(  (?:ca\.crt|ca\.key|tls\.crt|tls\.key)): \S+$`)

// cases are the values in testdata, by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	expect.NoError(t, err)
	if len(files) == 0 {
		t.Fatal("no values in testdata")
	}
	all := map[string]string{}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), ".values.yaml")] = file
	}
	return all
}

// TestLint: helm lint has nothing to complain of, with any of the values.
func TestLint(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			mustHelm(t, "lint", "--strict", "--kube-version", "1.36.0", chart, "-f", file)
		})
	}
}

// TestGolden: what is rendered is what it was, and Kubernetes' own types have all of its fields.
func TestGolden(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			rendered, err := template(t, "-f", file)
			expect.NoError(t, err)
			objects(t, rendered)
			got := made.ReplaceAllString(rendered, "$1: MADE")
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				expect.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
				return
			}
			want, err := os.ReadFile(golden) // #nosec G304 -- of this package
			expect.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-update writes it; (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDashboards: every file of the folder is in the ConfigMap as it stands, braces included.
func TestDashboards(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "listproxy")
	expect.NoError(t, os.CopyFS(copied, os.DirFS(chart)))
	const dashboard = `{"title": "{{ not for Helm }}"}`
	expect.NoError(t, os.WriteFile(filepath.Join(copied, "dashboards", "of-a-test.json"), []byte(dashboard), 0o600))
	rendered := mustHelm(t, "template", "listproxy", copied, "--set", "dashboards.enabled=true", "--show-only", "templates/configmap-dashboards.yaml")
	c := one[*corev1.ConfigMap](t, objects(t, rendered), nil)
	if c.Data["of-a-test.json"] != dashboard || c.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v, data %q", c.Labels, c.Data["of-a-test.json"])
	}
	for name := range c.Data {
		if filepath.Ext(name) != ".json" {
			t.Errorf("%s is no dashboard", name)
		}
	}
}

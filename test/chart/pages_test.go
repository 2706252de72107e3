package chart

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
)

// documentedCommands returns the command lines with a program in code blocks of the pages, and in the notes that Helm prints
// after an installation, each once.
func documentedCommands(t *testing.T, program string) []string {
	t.Helper()
	files, err := filepath.Glob(repository + "/docs/*.md")
	expect.NoError(t, err)
	files = append(files, repository+"/README.md", repository+"/CONTRIBUTING.md", chart+"/README.md")
	code := mustHelm(t, "install", "listproxy", chart, "--namespace", "proxies", "--dry-run=client")
	for _, path := range files {
		name, err := filepath.Rel(repository, path)
		expect.NoError(t, err)
		code += "\n" + strings.Join(pages.Matches("(?s)\n```[a-z]*\n(.*?)\n```", pages.Read(t, name)), "\n")
	}
	var found []string
	for _, line := range pages.Matches(`(?m)^(?:.*: |\$ |)(`+program+` [^\n]*)$`, strings.ReplaceAll(code, "\\\n", " ")) {
		if line = strings.Join(strings.Fields(line), " "); !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	return found
}

// TestHelmInPages: Helm accepts the commands in the pages, with the values that the pages show. Commands that need a cluster
// are only parsed (make test-cluster runs them), and installations are dry runs.
func TestHelmInPages(t *testing.T) {
	t.Parallel()
	replacements := map[string]string{
		"charts/listproxy": chart, "values.yaml": values(t, pages.Block(t, "operate.md", "# values.yaml\n", "")),
		"--dry-run=server": "--dry-run=client", "upgrade": "install",
	}
	lines := documentedCommands(t, "helm")
	if len(lines) < 5 {
		t.Errorf("the pages have only %q, want at least 5", lines)
	}
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " | ")
		args := strings.Fields(line)[1:]
		for i, arg := range args {
			args[i] = cmp.Or(replacements[arg], arg)
		}
		switch {
		case slices.Contains(args, "install"):
			args = append(args, "--dry-run=client")
		case slices.Contains(args, "test"), slices.Contains(args, "uninstall"):
			args = append(args, "--help") // unknown flags before it are errors
		case !slices.Contains(args, "template"):
			t.Errorf("this test does not know %q", line)
			continue
		}
		out, err := helm(t, args...)
		if err != nil && strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
			continue // TestBypass runs this command
		}
		if err != nil || out == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestPagesBesideTheChart: manifests that the README has people apply and delete for a trial share no name with an
// installation of the chart; and docs/flow-schema.yaml names the service account of the installation.
func TestPagesBesideTheChart(t *testing.T) {
	const names = `\bname(?:space)?: *"?([\w:.-]+)`
	allParts := values(t, "{clientCertificates: {enabled: true, caConfigMap: {name: ca}}, impersonation: {users: [jane]}}")
	installed := render(t, allParts, "--namespace", "listproxy")
	taken := pages.Matches(names, installed.text)
	for _, file := range []string{"rbac.yaml", "rbac-impersonation.yaml"} {
		for _, name := range pages.Matches(names, pages.Read(t, "docs/"+file)) {
			if slices.Contains(taken, name) && name != "kube-system" {
				t.Errorf("docs/%s: the chart has the name %q, too", file, name)
			}
		}
	}
	schema := one[*flowcontrolv1.FlowSchema](t, objects(t, pages.Read(t, "docs/flow-schema.yaml")))
	deployment := one[*appsv1.Deployment](t, installed.objects)
	want := flowcontrolv1.ServiceAccountSubject{Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName}
	expect.Same(t, want, *schema.Spec.Rules[0].Subjects[0].ServiceAccount)
}

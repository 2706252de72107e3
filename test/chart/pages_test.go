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

// documentedCommands returns the command lines that run a program, such as "helm install …", in code blocks of the
// documentation and in the notes that Helm prints after an installation. A line that is there several times is returned once.
func documentedCommands(t *testing.T, program string) []string {
	t.Helper()
	files, err := filepath.Glob(repoRoot + "/docs/*.md")
	expect.NoError(t, err)
	files = append(files, repoRoot+"/README.md", repoRoot+"/CONTRIBUTING.md", chart+"/README.md")
	code := mustHelm(t, "install", "listproxy", chart, "--namespace", "proxies", "--dry-run=client")
	for _, path := range files {
		name, err := filepath.Rel(repoRoot, path)
		expect.NoError(t, err)
		code += "\n" + strings.Join(pages.Matches("(?s)\n```[a-z]*\n(.*?)\n```", pages.Read(t, name)), "\n")
	}
	var found []string
	// A command is at the beginning of a line, behind the prompt "$ ", or behind a key of YAML, such as "run: ". A line that
	// ends with a backslash goes on in the next line.
	for _, line := range pages.Matches(`(?m)^(?:.*: |\$ |)(`+program+` [^\n]*)$`, strings.ReplaceAll(code, "\\\n", " ")) {
		withSingleSpaces := strings.Join(strings.Fields(line), " ")
		if !slices.Contains(found, withSingleSpaces) {
			found = append(found, withSingleSpaces)
		}
	}
	return found
}

// TestHelmInPages: Helm accepts the commands in the pages, with the values that the pages show. Commands that need a cluster
// are only parsed (make test-cluster runs them), and installations are dry runs.
func TestHelmInPages(t *testing.T) {
	t.Parallel()
	replacements := map[string]string{ // of arguments
		"charts/listproxy": chart,
		"values.yaml":      writeValues(t, pages.Block(t, "operate.md", "# values.yaml\n", "")), // the page's own
		"--dry-run=server": "--dry-run=client",                                                  // there is no cluster
		"upgrade":          "install",                                                           // there is no release
	}
	const minCommands = 5 // if fewer are found, the expression in documentedCommands no longer matches the pages
	lines := documentedCommands(t, "helm")
	if len(lines) < minCommands {
		t.Errorf("the pages have only %q, want at least %d", lines, minCommands)
	}
	for _, line := range lines {
		if strings.Contains(line, "bypass=true") {
			continue // TestBypass runs this command, which needs a cluster
		}
		line, _, _ = strings.Cut(line, " | ") // without "| kubectl apply -f -"
		args := strings.Fields(line)[1:]
		for i, arg := range args {
			args[i] = cmp.Or(replacements[arg], arg)
		}
		switch {
		case slices.Contains(args, "install"):
			args = append(args, "--dry-run=client")
		case slices.Contains(args, "test"), slices.Contains(args, "uninstall"):
			args = append(args, "--help") // Helm still parses the flags before it
		case !slices.Contains(args, "template"):
			t.Errorf("this test does not know %q", line)
			continue
		}
		if out, err := helm(t, args...); err != nil || out == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestTrialBesideTheChart: people who try listproxy by the README create objects, and delete them later. None of these has the
// name of an object in an installation of the chart.
func TestTrialBesideTheChart(t *testing.T) {
	const names = `\bname(?:space)?: *"?([\w:.-]+)`
	allParts := writeValues(t, "{clientCertificates: {enabled: true, caConfigMap: {name: ca}}, impersonation: {users: [jane]}}")
	taken := pages.Matches(names, render(t, allParts, "--namespace", "listproxy").text)
	for _, file := range []string{"rbac.yaml", "rbac-impersonation.yaml"} {
		for _, name := range pages.Matches(names, pages.Read(t, "docs/"+file)) {
			if slices.Contains(taken, name) && name != "kube-system" { // neither creates nor deletes kube-system
				t.Errorf("docs/%s: the chart has the name %q, too", file, name)
			}
		}
	}
}

// TestFlowSchemaInPages: docs/flow-schema.yaml names the service account of an installation of the chart.
func TestFlowSchemaInPages(t *testing.T) {
	schema := one[*flowcontrolv1.FlowSchema](t, objects(t, pages.Read(t, "docs/flow-schema.yaml")))
	installed := render(t, writeValues(t, "{}"), "--namespace", "listproxy")
	deployment := one[*appsv1.Deployment](t, installed.objects)
	want := flowcontrolv1.ServiceAccountSubject{Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName}
	expect.Same(t, want, *schema.Spec.Rules[0].Subjects[0].ServiceAccount)
}

package chart

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// block is the first block of a page of docs that begins with something.
func block(t *testing.T, name, begins string) string {
	t.Helper()
	found := matches("(?s)\n```yaml\n("+begins+".*?)```", page(t, "docs/"+name))
	if len(found) == 0 {
		t.Fatalf("docs/%s has no block that begins with %q", name, begins)
	}
	return found[0]
}

// commandsOf are the lines of the pages' blocks that begin with a command, each once, and those of
// what Helm prints after an installation.
func commandsOf(t *testing.T, command string) []string {
	t.Helper()
	pages, err := filepath.Glob(repository + "/docs/*.md")
	expect.NoError(t, err)
	pages = append(pages, repository+"/README.md", repository+"/CONTRIBUTING.md", chart+"/README.md")
	code := mustHelm(t, "install", "listproxy", chart, "--namespace", "proxies", "--dry-run=client")
	for _, path := range pages {
		name, err := filepath.Rel(repository, path)
		expect.NoError(t, err)
		code += "\n" + strings.Join(matches("(?s)\n```[a-z]*\n(.*?)\n```", page(t, name)), "\n")
	}
	var found []string
	for _, line := range matches(`(?m)^(?:.*: |\$ |)(`+command+` [^\n]*)$`, strings.ReplaceAll(code, "\\\n", " ")) {
		if line = strings.Join(strings.Fields(line), " "); !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	return found
}

// TestHelmInPages: Helm takes the commands that the pages tell, with the values that they show.
// What needs a cluster is only read here (TestInstall runs it), and what is installed is not sent
// anywhere.
func TestHelmInPages(t *testing.T) {
	t.Parallel()
	here := map[string]string{
		"charts/listproxy": chart, "values.yaml": values(t, block(t, "operate.md", "# values.yaml\n")), "--dry-run=server": "--dry-run=client",
	}
	untold := map[string]bool{"install": true, "upgrade": true, "template": true, "test": true, "uninstall": true}
	known := regexp.MustCompile(`^(install|upgrade|template|test|uninstall)$`)
	for _, line := range commandsOf(t, "helm") {
		line, _, _ = strings.Cut(line, " | ")
		args := strings.Fields(line)[1:]
		i := slices.IndexFunc(args, known.MatchString)
		if i < 0 {
			t.Errorf("this test does not know %q", line)
			continue
		}
		delete(untold, args[i])
		for j, arg := range args {
			if other, ok := here[arg]; ok {
				args[j] = other
			}
		}
		switch args[i] {
		case "install", "upgrade":
			args[i] = "install"
			args = append(args, "--dry-run=client")
		case "test", "uninstall":
			args = append(args, "--help") // after what it does not know
		}
		out, err := helm(t, args...)
		if err != nil && strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
			continue // TestWays runs it
		}
		if err != nil || out == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	if len(untold) > 0 {
		t.Errorf("no page tells %v", untold)
	}
}

// TestDockerInPages: what the pages tell to build is what the Dockerfile takes, and what the chart
// then looks for.
func TestDockerInPages(t *testing.T) {
	known := matches(`(?m)^ARG (\w+)`, page(t, "Dockerfile"))
	lines := commandsOf(t, "docker")
	if len(lines) == 0 {
		t.Fatal("no page tells how to build the image")
	}
	for _, line := range lines {
		image := regexp.MustCompile(`^docker buildx build (?:.* )?-t (\S+):(\S+) (?:.* )?\.$`).FindStringSubmatch(line)
		if image == nil {
			t.Errorf("%q does not build this folder", line)
			continue
		}
		for _, m := range regexp.MustCompile(`--build-arg (\w+)=(\S+)`).FindAllStringSubmatch(line, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%q: the Dockerfile has no ARG %s", line, m[1])
			}
			if m[1] == "VERSION" && m[2] != "v"+image[2] {
				t.Errorf("%q: the program would say that it is %s", line, m[2])
			}
		}
		pods := one[*appsv1.Deployment](t, render(t, values(t, "{}"), "--set", "image.repository="+image[1]).objects).Spec.Template
		expect.Same(t, image[1]+":"+image[2], pods.Spec.Containers[0].Image)
	}
}

// TestTrialBesideTheChart: what the README says to apply and to delete for a trial shares no name
// with an installation as the README says it, nor with its namespace and its account.
func TestTrialBesideTheChart(t *testing.T) {
	const names = `\bname(?:space)?: *"?([\w:.-]+)`
	file := values(t, "{clientCertificates: {enabled: true, caConfigMap: {name: ca}}, impersonation: {users: [jane]}}")
	installed := matches(names, render(t, file, "--namespace", "listproxy").text)
	for _, file := range []string{"rbac.yaml", "rbac-impersonation.yaml"} {
		for _, name := range matches(names, page(t, "docs/"+file)) {
			if slices.Contains(installed, name) && name != "kube-system" {
				t.Errorf("docs/%s: the chart has the name %q, too", file, name)
			}
		}
	}
}

// TestFlowSchemaOfTheChart: docs/flow-schema.yaml is for the account of an installation as the README
// says it.
func TestFlowSchemaOfTheChart(t *testing.T) {
	schema := one[*flowcontrolv1.FlowSchema](t, objects(t, page(t, "docs/flow-schema.yaml")))
	deployment := one[*appsv1.Deployment](t, render(t, values(t, "{}"), "--namespace", "listproxy").objects)
	want := flowcontrolv1.ServiceAccountSubject{Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName}
	expect.Same(t, want, *schema.Spec.Rules[0].Subjects[0].ServiceAccount)
}

// TestReadme: every value in values.yaml has a comment, and those in the table of the chart's README
// are values.
func TestReadme(t *testing.T) {
	var document yaml.Node
	expect.NoError(t, yaml.Unmarshal([]byte(page(t, "charts/listproxy/values.yaml")), &document))
	known := described(t, "", document.Content[0])
	_, table, ok := strings.Cut(page(t, "charts/listproxy/README.md"), "\n| value | default | |\n")
	if !ok {
		t.Fatal("README.md has no table of values")
	}
	for _, row := range matches(`(?m)^\|([^|]*)\|`, table) {
		for _, name := range matches("`([^`]+)`", row) {
			if !slices.Contains(known, name) {
				t.Errorf("README.md has %s, which is no value", name)
			}
		}
	}
}

// described are the values of a mapping. What has a comment that begins with -- is a value, even if
// it is a mapping itself; the other mappings are looked into.
func described(t *testing.T, path string, mapping *yaml.Node) (known []string) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := path + key.Value
		switch {
		case strings.HasPrefix(key.HeadComment, "# -- "):
			known = append(known, name)
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			known = append(known, described(t, name+".", value)...)
		default:
			t.Errorf("%s has no comment that begins with --", name)
		}
	}
	return known
}

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/listproxy/listproxy/test/expect"
)

// commandsOf are the lines of the pages' blocks that begin with a command, each once, and those of
// what Helm prints after an installation.
func commandsOf(t *testing.T, command string) []string {
	t.Helper()
	pages, err := filepath.Glob(repository + "/docs/*.md")
	expect.NoError(t, err)
	pages = append(pages, repository+"/README.md", repository+"/CONTRIBUTING.md", chart+"/README.md")
	code := mustHelm(t, "install", "listproxy", chart, "--namespace", "proxies", "--dry-run=client")
	for _, page := range pages {
		text, err := os.ReadFile(page) // #nosec G304 -- of this repository
		expect.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
			code += "\n" + block[1]
		}
	}
	code = strings.ReplaceAll(code, "\\\n", " ")
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^(?:.*: |\$ |)(`+command+` [^\n]*)$`).FindAllStringSubmatch(code, -1) {
		if line := strings.Join(strings.Fields(m[1]), " "); !slices.Contains(found, line) {
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
	text, err := os.ReadFile(repository + "/docs/operate.md")
	expect.NoError(t, err)
	example := regexp.MustCompile("(?s)\n```yaml\n# values.yaml\n(.*?)```").FindSubmatch(text)
	if example == nil {
		t.Fatal("docs/operate.md has no values.yaml")
	}
	file := values(t, string(example[1]))
	ran := map[string]int{}
	for _, line := range commandsOf(t, "helm") {
		line, _, _ = strings.Cut(line, " | ")
		args := strings.Fields(line)[1:]
		i := slices.IndexFunc(args, func(a string) bool {
			return slices.Contains([]string{"install", "upgrade", "template", "test", "uninstall"}, a)
		})
		if i < 0 {
			t.Errorf("this test does not know %q", line)
			continue
		}
		ran[args[i]]++
		for j, arg := range args {
			switch arg {
			case "charts/listproxy":
				args[j] = chart
			case "values.yaml":
				args[j] = file
			case "--dry-run=server":
				args[j] = "--dry-run=client"
			}
		}
		switch args[i] {
		case "install", "upgrade":
			args[i] = "install"
			args = append(args, "--dry-run=client")
		case "template":
		default:
			args = append(args, "--help") // after what it does not know
		}
		out, err := helm(t, args...)
		if slices.Contains(args, "bypass=true") && err != nil && strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
			continue // TestBypass runs it
		}
		if err != nil || out == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, verb := range []string{"install", "upgrade", "template", "test", "uninstall"} {
		if ran[verb] == 0 {
			t.Errorf("no page tells helm %s", verb)
		}
	}
}

// TestDockerInPages: what the pages tell to build is what the Dockerfile takes, and what the chart
// then looks for.
func TestDockerInPages(t *testing.T) {
	var about struct {
		AppVersion string `yaml:"appVersion"`
	}
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &about)
	}
	expect.NoError(t, err)
	var known []string
	for _, stage := range readDockerfile(t) {
		for _, arg := range all(stage, "ARG") {
			name, _, _ := strings.Cut(arg, "=")
			known = append(known, name)
		}
	}
	lines := commandsOf(t, "docker")
	if len(lines) == 0 {
		t.Fatal("no page tells how to build the image")
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "docker buildx build ") || !strings.HasSuffix(line, " .") {
			t.Errorf("%q does not build this folder", line)
		}
		for _, m := range regexp.MustCompile(`--build-arg (\w+)=(\S+)`).FindAllStringSubmatch(line, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%q: the Dockerfile has no ARG %s", line, m[1])
			}
			if m[1] == "VERSION" && m[2] != "v"+about.AppVersion {
				t.Errorf("%q: the program would say that it is %s, and the chart is of %s", line, m[2], about.AppVersion)
			}
		}
		image := regexp.MustCompile(` -t (\S+):(\S+) `).FindStringSubmatch(line)
		if image == nil || image[2] != about.AppVersion {
			t.Errorf("%q: the chart looks for the tag %s", line, about.AppVersion)
			continue
		}
		rendered := mustHelm(t, "template", "listproxy", chart, "--set", "image.repository="+image[1])
		if !strings.Contains(rendered, "image: "+image[1]+":"+image[2]+"\n") && !strings.Contains(rendered, `image: "`+image[1]+":"+image[2]+"\"\n") {
			t.Errorf("%q: the chart looks for another image", line)
		}
	}
}

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/listproxy/listproxy/test/expect"
)

// TestReadme: every value in values.yaml has a comment, and those in the table of the chart's README
// are values.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	expect.NoError(t, err)
	var document yaml.Node
	expect.NoError(t, yaml.Unmarshal(text, &document))
	known := map[string]bool{}
	described(t, "", document.Content[0], known)

	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	expect.NoError(t, err)
	_, table, ok := strings.Cut(string(readme), "\n| value | default | |\n")
	if !ok {
		t.Fatal("README.md has no table of values")
	}
	for _, line := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(line, "|")
		if len(cells) < 2 {
			break
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			if !known[m[1]] {
				t.Errorf("README.md has %s, which is no value", m[1])
			}
		}
	}
}

// described finds the values of a mapping. What has a comment that begins with -- is a value, even if
// it is a mapping itself; the other mappings are looked into.
func described(t *testing.T, path string, mapping *yaml.Node, known map[string]bool) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case strings.HasPrefix(key.HeadComment, "# -- "):
			known[name] = true
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			described(t, name, value, known)
		default:
			t.Errorf("%s has no comment that begins with --", name)
		}
	}
}

package chart

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/listproxy/listproxy/test/expect"
)

const (
	tableBegin = "<!-- values: made from values.yaml -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// TestReadme: the table of values in the chart's README is what values.yaml and its comments say,
// and every value has a comment.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	expect.NoError(t, err)
	var document yaml.Node
	expect.NoError(t, yaml.Unmarshal(text, &document))
	table := "| value | default | |\n|---|---|---|\n" + strings.Join(rows(t, "", document.Content[0]), "")

	path := filepath.Join(chart, "README.md")
	readme, err := os.ReadFile(path)
	expect.NoError(t, err)
	before, rest, ok := bytes.Cut(readme, []byte(tableBegin))
	old, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		t.Fatalf("%s has no %q … %q", path, tableBegin, tableEnd)
	}
	if *update {
		whole := fmt.Sprintf("%s%s%s%s%s", before, tableBegin, table, tableEnd, after)
		expect.NoError(t, os.WriteFile(path, []byte(whole), 0o600))
		return
	}
	if diff := cmp.Diff(table, string(old)); diff != "" {
		t.Errorf("-update writes it; (-values.yaml +README.md):\n%s", diff)
	}
}

// rows are those of a mapping. What has a comment that begins with -- is a value, even if it is a
// mapping itself; the other mappings are looked into.
func rows(t *testing.T, path string, mapping *yaml.Node) []string {
	t.Helper()
	var all []string
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		comment, described := strings.CutPrefix(key.HeadComment, "# -- ")
		switch {
		case described:
			comment = strings.ReplaceAll(strings.ReplaceAll(comment, "\n# ", " "), "|", `\|`)
			all = append(all, fmt.Sprintf("| `%s` | %s | %s |\n", name, shown(t, value), comment))
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			all = append(all, rows(t, name, value)...)
		default:
			t.Errorf("%s has no comment that begins with --", name)
		}
	}
	return all
}

// shown is a default in one cell.
func shown(t *testing.T, value *yaml.Node) string {
	t.Helper()
	if value.Kind == yaml.ScalarNode {
		if value.Value == "" {
			return ""
		}
		return "`" + value.Value + "`"
	}
	if len(value.Content) == 0 {
		return ""
	}
	if len(value.Content) > 3 {
		return "see values.yaml"
	}
	flow := *value
	flow.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&flow)
	expect.NoError(t, err)
	return "`" + strings.Join(strings.Fields(string(text)), " ") + "`"
}

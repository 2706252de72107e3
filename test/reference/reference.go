// Package reference checks that docs/reference.md agrees with the code. For each part of the page, a test of the package that
// it describes makes the text. make reference writes the texts into the page.
package reference

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("reference.update", false, "write docs/reference.md")

// Check fails the test unless a part of the page at path has this text. With -reference.update, it writes the text there.
func Check(t *testing.T, path, part, text string) {
	t.Helper()
	page, err := os.ReadFile(path) // #nosec G304 -- of this repository
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+part+": make reference writes this -->\n\n", "\n<!-- end of "+part+" -->\n"
	before, rest, hasBegin := strings.Cut(string(page), begin)
	old, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no %q … %q", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+text+end+after), 0o600); err != nil { // #nosec G703 -- as above
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(text, old); diff != "" {
		t.Errorf("%s (-code +page), run make reference:\n%s", path, diff)
	}
}

// flagPattern matches command-line flags.
var flagPattern = regexp.MustCompile(`--[a-z][a-z-]*[a-z](=\w+)?`)

// Row returns a line of a Markdown table. If a cell has no backquotes, it puts command-line flags into backquotes.
func Row(cells ...string) string {
	var line strings.Builder
	line.WriteString("|")
	for _, cell := range cells {
		cell = strings.Join(strings.Fields(cell), " ")
		if !strings.Contains(cell, "`") {
			cell = strings.ReplaceAll(cell, "*", `\*`)
			cell = flagPattern.ReplaceAllString(cell, "`$0`")
		}
		if cell != "" {
			line.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`))
		}
		line.WriteString(" |")
	}
	return line.String() + "\n"
}

// Head returns the first two lines of a Markdown table: its titles, and the line below them.
func Head(cells ...string) string { return Row(cells...) + strings.Repeat("|---", len(cells)) + "|\n" }

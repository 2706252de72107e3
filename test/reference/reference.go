// Package reference checks that docs/reference.md agrees with the code. For each part of the page, a test of the package that it
// describes makes the text. make reference writes the texts into the page.
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

// Check fails the test unless text is what the page at path has in a part. With -reference.update, it writes text there.
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

// flags matches command-line flags.
var flags = regexp.MustCompile(`--[a-z][a-z-]*[a-z](=\w+)?`)

// Row returns a line of a Markdown table. In cells without backquotes, command-line flags get them.
func Row(cells ...string) string {
	var line strings.Builder
	line.WriteString("|")
	for _, cell := range cells {
		cell = strings.Join(strings.Fields(cell), " ")
		if cell != "" {
			if !strings.Contains(cell, "`") {
				cell = flags.ReplaceAllString(strings.ReplaceAll(cell, "*", `\*`), "`$0`")
			}
			line.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`))
		}
		line.WriteString(" |")
	}
	return line.String() + "\n"
}

// Head returns the first two lines of a Markdown table: its titles, and the line below them.
func Head(cells ...string) string { return Row(cells...) + strings.Repeat("|---", len(cells)) + "|\n" }

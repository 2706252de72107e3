// Package pages reads the documentation, so that tests do what it says.
package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
)

// Read reads a file, by its path in this repository.
func Read(t testing.TB, name string) string {
	t.Helper()
	root, err := binaries.RepoRoot()
	expect.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of this repository
	expect.NoError(t, err)
	return string(text)
}

// Matches returns what the only group of an expression matches in a text, in order.
func Matches(expression, text string) (found []string) {
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// Block returns a block of code in the page docs/NAME: the first that begins with a match of the regular expression begins, and
// contains the text words.
func Block(t testing.TB, name, begins, words string) string {
	t.Helper()
	for _, text := range Matches("(?s)\n```(?:yaml)?\n("+begins+".*?)```", Read(t, "docs/"+name)) {
		if strings.Contains(text, words) {
			return text
		}
	}
	t.Fatalf("docs/%s has no block that begins with %q and has %q", name, begins, words)
	return ""
}

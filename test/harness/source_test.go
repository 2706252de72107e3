package harness

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// root is the module's directory.
const root = "../.."

// TestAdminPathsAreKnown: whatever the admin port comes to answer, a process is asked for it before it
// ends.
func TestAdminPathsAreKnown(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "proxy/admin/port.go"))
	expect.NoError(t, err)
	found := regexp.MustCompile(`\.Handle(?:Func)?\("(?:GET )?(/[^"{]*)`).FindAllSubmatch(source, -1)
	if len(found) < 8 {
		t.Errorf("only these paths were found: %q", found)
	}
	for _, m := range found {
		if path := string(m[1]); !slices.Contains(adminPaths, path) {
			t.Errorf("%s is missing in adminPaths", path)
		}
	}
}

// TestPackagesStaySmall: a package of production code that one person can keep in mind has one job.
func TestPackagesStaySmall(t *testing.T) {
	const most = 2500
	// A collection's feed, interval and state change together, under one lock.
	larger := map[string]int{"snapshot": 4000}
	lines := map[string]int{}
	for _, dir := range []string{"cmd", "policy", "proxy", "snapshot", "telemetry"} {
		expect.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path) // #nosec G304 G122 -- of this repository
			lines[strings.TrimPrefix(filepath.Dir(path), root+"/")] += bytes.Count(text, []byte("\n"))
			return err
		}))
	}
	for folder, n := range lines {
		if n > max(most, larger[folder]) {
			t.Errorf("%s has %d lines, and may have %d: move what is a job of its own to its own package", folder, n, max(most, larger[folder]))
		}
	}
}
